// What it means to draw a token from scores: transformers' processors in transformers' order, then a draw that a
// uniform number decides.
#pragma once
#include <cstdint>
#include <span>

namespace tenon {

/// Which scores are left, and what of. Scores are divided by the temperature first; each rule reads what the one before
/// it has left.
struct DrawRule {
  double temperature = 0;  ///< 0: the largest score is taken, of equal ones the first; nothing is dropped
  double top_k = 0;        ///< scores below the k-th largest are dropped; below 1: none
  double top_p = 1;        ///< the largest scores whose probabilities reach it are kept, and their equals; 1: all
  double min_p = 0;        ///< probabilities below this share of the largest are dropped
};

struct DrawnToken {
  int32_t id = 0;
  double log_probability = 0;  ///< of what was drawn from: filtered, scaled, and normalised over what is left
};

/// The first token at which the sum of probabilities of those left passes `u`, 0 <= u < 1, of the whole; sums are f64.
/// {0, NaN} where a score is NaN or +infinity, or none is above -infinity. T: float, or double (the oracle).
template <class T>
DrawnToken draw_token(std::span<const T> scores, const DrawRule& rule, double u);

}  // namespace tenon
