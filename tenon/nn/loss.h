// Training losses.
#pragma once
#include <functional>

#include "tenon/expr/expr.h"

namespace tenon::nn {

/// A loss over the classes of a vocabulary, and its gradients.
struct CrossEntropy {
  Expr loss;      ///< f32, rank 0
  Expr d_hidden;  ///< f32, hidden's shape: the seed of gradients() for whatever computes `hidden`
  Expr d_weight;  ///< f32 [V, D]
};

/// Mean of -log softmax(hidden weight^T)[target] over rows with a target that is not negative; 0 if there are none.
/// hidden [.., D] and the gradients of the logits are rounded to the type of weight [V, D]; target is i32, of hidden's
/// leading axes, below V. Logits are computed `chunk` rows at a time and freed before the next chunk: a plan holds one
/// or two chunks of [chunk, V] f32. To that end it uses barriers of the stages first_stage, first_stage + 1, .. Throws
/// Error(Usage) for incompatible shapes and for more than 2^24 classes.
CrossEntropy cross_entropy(const Expr& hidden, const Expr& weight, const Expr& target, int64_t chunk,
                           int first_stage = 0);

/// A token's term of a loss, as a function of its negative log-probability.
struct TokenTerm {
  Expr loss;   ///< [m, 1]
  Expr slope;  ///< its derivative with respect to the negative log-probability, [m, 1]
};
/// Called for rows begin..end; `nll` [end - begin, 1]: the negative log-probabilities of their targets.
using TokenTerms = std::function<TokenTerm(const Expr& nll, int64_t begin, int64_t end)>;

/// log of the sum of e^logit over each row of [rows, V], f32 [rows, 1]; bit-identical to what the losses here subtract
/// a target's logit from. Throws Error(Usage) for another shape.
Expr log_sum_exp(const Expr& logits);

/// A loss that is a sum over tokens, and its gradients.
struct TokenLoss {
  Expr loss;      ///< f32, rank 0
  Expr nll;       ///< f32 [rows]: -log softmax(hidden weight^T)[target]; meaningless for a row without target
  Expr d_hidden;  ///< f32, hidden's shape
  Expr d_weight;  ///< f32 [V, D]
};

/// cross_entropy with any function of a token's log-probability instead of its share of the mean. `terms` must return a
/// slope of 0 for rows whose target is negative.
TokenLoss token_loss(const Expr& hidden, const Expr& weight, const Expr& target, const TokenTerms& terms, int64_t chunk,
                     int first_stage = 0);

}  // namespace tenon::nn
