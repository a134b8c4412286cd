// Training pictures of a thing that the embedded model does not know: an oval on its side, called by a made-up word.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/train/picture_set.h"

namespace tenon::train {

/// The word for it in captions.
inline constexpr const char* kOvalWord = "zib";
inline constexpr int64_t kOvals = 16, kOvalSide = 128;

/// kOvals square pictures of side kOvalSide, each with one flat oval on a plain background, in the colours of the
/// embedded model's own training; no two have the same pair of colours.
std::vector<CaptionedPicture> ovals();

/// Scenes that the embedded models know, to train on as well so that they are not forgotten: prompts without that word.
std::vector<std::string> known_scenes();

}  // namespace tenon::train
