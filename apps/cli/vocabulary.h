// The words that the embedded model knows, for help and the manual page.
#pragma once
#include "tenon/pipelines/known_words.h"

namespace tenon::cli {

inline constexpr const char* kVocabularyIntroduction =
    "The embedded model draws shapes on plain backgrounds. It knows these words and no others:";

/// Empty if the embedded model is missing.
KnownWords vocabulary();

}  // namespace tenon::cli
