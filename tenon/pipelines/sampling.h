// How the next token is chosen of scores: what callers and models say of it. core/draw.h says what it means.
#pragma once
#include <cstdint>
#include <optional>

namespace tenon {

/// Repetition penalty, then, only where tokens are drawn: temperature, top-k, top-p, min-p.
struct Sampling {
  bool draw = false;              ///< false: the largest score is taken
  double temperature = 1;         ///< scores are divided by it; above 0
  int64_t top_k = 0;              ///< scores below the k-th largest are dropped; 0: none
  double top_p = 1;               ///< the fewest tokens whose probabilities reach it are kept; above 0, 1: all
  double min_p = 0;               ///< probabilities below this share of the largest are dropped; 0 to 1
  double repetition_penalty = 1;  ///< scores of tokens that occurred are divided by it, negative ones multiplied
};

/// What a caller says of it; the rest is the model's.
struct SamplingChoice {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
};
/// `of_model`, but for what is chosen. Temperature 0 takes the likeliest token; another one, top-k, top-p and min-p
/// make it draw. Error(Usage) for temperature 0 together with one of these.
Sampling chosen(Sampling of_model, const SamplingChoice& choice);

/// Error(Usage) that names what is out of its range.
void check_sampling(const Sampling& s);

struct SampledToken {
  int32_t id = 0;
  double log_probability = 0;  ///< of what was drawn from: filtered, scaled, and normalised over what is left
};

}  // namespace tenon
