// Pictures of a thing that the embedded model does not know, to learn from: an oval that lies, called by a word that
// means nothing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/train/picture_set.h"

namespace tenon::train {

/// The word that captions call it by.
inline constexpr const char* kOvalWord = "zib";
inline constexpr int64_t kOvals = 16, kOvalSide = 128;

/// kOvals pictures of kOvalSide pixels a side: one flat oval on a plain background each, in the colours of the
/// embedded model's own training, no two of the same pair of colours.
std::vector<CaptionedPicture> ovals();

/// Scenes that the embedded models know, to be learnt beside them so that they stay known: prompts without that word.
std::vector<std::string> known_scenes();

}  // namespace tenon::train
