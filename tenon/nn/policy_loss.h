// Losses of policy gradients over sampled tokens (GRPO, Shao et al. 2024, "DeepSeekMath"; Dr. GRPO, Liu et al. 2025,
// "Understanding R1-Zero-like training"; bnpo and dapo as TRL's GRPOTrainer computes them). Of every token, with the
// advantage A of its completion:
//
//   rho = exp(logp - old)
//   pg  = -min(min(rho, delta) A, clip(rho, 1 - low, 1 + high) A)
//   k3  = exp(ref - logp) - (ref - logp) - 1
//   l   = pg + beta k3
//
// and the loss is the sum of l over tokens, each with a weight. The gradient is that of the product that the minimum
// takes: where the clipped one is smaller and rho outside the bounds, 0.
#pragma once
#include <cstdint>
#include <string>

#include "tenon/expr/expr.h"

namespace tenon::nn {

/// What tokens weigh: how sums over rows of different lengths become one number.
enum class PolicyLoss : uint8_t {
  DrGrpo,  ///< 1 / (rows * longest): a constant
  Grpo,    ///< 1 / (rows * length of the row)
  Bnpo,    ///< 1 / tokens of the batch
  Dapo,    ///< 1 / tokens of all batches that one update accumulates
};

struct PolicyOptions {
  double clip_low = 0.2, clip_high = 0.2;
  double delta = 0;  ///< upper bound of rho in the product that is not clipped; 0: none
  double beta = 0;   ///< of k3; 0: no reference is read
};

/// Error(Usage) that names what is out of its range: 0 <= clip_low < 1, clip_high >= 0, delta 0 or above 1, beta >= 0.
void check_policy(const PolicyOptions& o);

/// weight * l of every token; all of one shape. Where `weight` is 0 the result and its gradient are 0, whatever the log
/// probabilities are. `reference` may be empty if beta is 0. Differences of log-probabilities are limited to +-40, so
/// that nothing overflows. k3 is a series near 0, where its terms would cancel.
Expr policy_terms(const Expr& logp, const Expr& old, const Expr& reference, const Expr& advantage, const Expr& weight,
                  const PolicyOptions& o);

/// The weights of tokens, `mask`'s shape [N, C] (1 for a token of a completion, else 0). `longest`: DrGrpo's constant,
/// 1 for sums of tokens alone. `tokens`: rank 0, Dapo's. A batch without any token weighs nothing.
Expr token_weights(const Expr& mask, PolicyLoss kind, double longest, const Expr& tokens = {});

}  // namespace tenon::nn
