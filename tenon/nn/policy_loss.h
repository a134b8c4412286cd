// Policy-gradient losses over sampled tokens (GRPO, Shao et al. 2024, "DeepSeekMath"; Dr. GRPO, Liu et al. 2025,
// "Understanding R1-Zero-like training"; bnpo and dapo as in TRL's GRPOTrainer). For every token, with the advantage A
// of its completion:
//
//   rho = exp(logp - old)
//   pg  = -min(min(rho, delta) A, clip(rho, 1 - low, 1 + high) A)
//   k3  = exp(ref - logp) - (ref - logp) - 1
//   l   = pg + beta k3
// and the loss is the weighted sum of l over tokens. The gradient is that of the product which the minimum selects: 0
// where the clipped one is smaller and rho is out of bounds.
#pragma once
#include <cstdint>
#include <string>

#include "tenon/expr/expr.h"

namespace tenon::nn {

/// Weights of tokens: how sums over rows of different lengths become one number.
enum class PolicyLoss : uint8_t {
  DrGrpo,  ///< 1 / (rows * longest): a constant
  Grpo,    ///< 1 / (rows * length of the row)
  Bnpo,    ///< 1 / tokens of the batch
  Dapo,    ///< 1 / tokens of all batches that one update accumulates
};

struct PolicyOptions {
  double clip_low = 0.2, clip_high = 0.2;
  double delta = 0;  ///< upper bound of rho in the unclipped product; 0: none
  double beta = 0;   ///< weight of k3; 0: no reference is read
};

/// Throws Error(Usage) that names the option out of range: 0 <= clip_low < 1, clip_high >= 0, delta 0 or above 1,
/// beta >= 0.
void check_policy(const PolicyOptions& o);

/// weight * l of every token; all arguments have one shape. Where `weight` is 0, the result and its gradient are 0,
/// whatever the log-probabilities. `reference` may be empty if beta is 0. Differences of log-probabilities are clamped
/// to +-40, so that nothing overflows. Near 0, where its terms would cancel, k3 is computed as a series.
Expr policy_terms(const Expr& logp, const Expr& old, const Expr& reference, const Expr& advantage, const Expr& weight,
                  const PolicyOptions& o);

/// The weights of tokens, of the shape of `mask` [N, C] (1 for a token of a completion, else 0). `longest`: DrGrpo's
/// constant, 1 for sums over tokens alone. `tokens`: rank 0, for Dapo. A batch without tokens has weights of 0.
Expr token_weights(const Expr& mask, PolicyLoss kind, double longest, const Expr& tokens = {});

}  // namespace tenon::nn
