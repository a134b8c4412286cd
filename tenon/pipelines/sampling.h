// Choosing the next token from logits: transformers' processors in transformers' order, then a draw that a seed and a
// position determine.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

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

/// Draws tokens of one sequence.
class TokenSampler {
 public:
  TokenSampler(const Sampling& options, uint64_t seed) : options_(options), seed_(seed) {}

  /// A token of the prompt or of the text so far: the repetition penalty reads which there were.
  void saw(int32_t id);
  /// The token at `position`, chosen by the scores of all tokens. The same seed, position, scores and tokens before
  /// give the same token. Of equal scores the lower id comes first. Error(Numeric) for scores of which none is a
  /// number, or one is NaN or +infinity.
  SampledToken next(std::span<const float> logits, int64_t position);

 private:
  Sampling options_;
  uint64_t seed_;
  std::vector<bool> seen_;
  std::vector<int32_t> seen_ids_;
  std::vector<float> scores_;
};

}  // namespace tenon
