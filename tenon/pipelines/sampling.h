// Settings for sampling the next token from scores, from callers and models. core/draw.h defines their meaning.
#pragma once
#include <cstdint>
#include <optional>

namespace tenon {

/// The least that scores are divided by, so that they remain finite.
inline constexpr double kLeastDivisor = 1e-6;

/// Repetition penalty; then, only if tokens are drawn: temperature, top-k, top-p, min-p.
struct Sampling {
  bool draw = false;              ///< false: take the largest score
  double temperature = 1;         ///< divides the scores; at least kLeastDivisor
  int64_t top_k = 0;              ///< drops scores below the k-th largest; 0: none
  double top_p = 1;               ///< keeps the fewest tokens whose probabilities sum to it; above 0, 1: all
  double min_p = 0;               ///< drops probabilities below this fraction of the largest; 0 to 1
  double repetition_penalty = 1;  ///< scores of tokens that occurred are divided by it, negative ones multiplied
};

/// A caller's settings; unset ones are the model's.
struct SamplingChoice {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
};
/// `of_model` with the caller's settings applied. Temperature 0 takes the likeliest token; any other temperature,
/// top-k, top-p or min-p turns drawing on. Error(Usage) for temperature 0 together with one of these.
Sampling chosen(Sampling of_model, const SamplingChoice& choice);

/// Error(Usage) that names a setting out of range.
void check_sampling(const Sampling& s);

struct SampledToken {
  int32_t id = 0;
  double log_probability = 0;  ///< in the distribution drawn from: filtered, scaled and normalised over the rest
};

}  // namespace tenon
