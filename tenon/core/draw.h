// Defines how a token is drawn from scores: transformers' logits processors in their order, then a draw decided by a
// uniform number.
#pragma once
#include <cstdint>
#include <span>

namespace tenon {

/// Which tokens remain. Scores are first divided by the temperature; each rule applies to what the previous one left.
struct DrawRule {
  double temperature = 0;  ///< 0: takes the largest score, the first of equal ones, and drops none
  double top_k = 0;        ///< drops scores below the k-th largest; below 1: none
  double top_p = 1;        ///< keeps the largest scores until their probabilities reach it, and ties; 1: all
  double min_p = 0;        ///< drops probabilities below this fraction of the largest
};

struct DrawnToken {
  int32_t id = 0;
  double log_probability = 0;  ///< after filtering and scaling, normalised over what remains
};

/// The first token at which the cumulative probability of those that remain exceeds the fraction `u` of their sum,
/// 0 <= u < 1; sums are f64. {0, NaN} if a score is NaN or +infinity, or none is above -infinity. T: float, or double
/// (the oracle).
template <class T>
DrawnToken draw_token(std::span<const T> scores, const DrawRule& rule, double u);

}  // namespace tenon
