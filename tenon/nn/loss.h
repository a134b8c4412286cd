// Losses of training.
#pragma once
#include <functional>

#include "tenon/expr/expr.h"

namespace tenon::nn {

/// A loss over the classes of a vocabulary, and its gradients.
struct CrossEntropy {
  Expr loss;      ///< f32, rank 0
  Expr d_hidden;  ///< f32, hidden's shape: the seed of gradients() for what computes `hidden`
  Expr d_weight;  ///< f32 [V, D]
};

/// Mean of -log softmax(hidden weight^T)[target] over the rows whose target is not negative; 0 where all are. hidden
/// [.., D] is rounded to the type of weight [V, D], and so are the gradients of the logits; target i32, hidden's
/// leading axes, below V. Logits are computed `chunk` rows at a time and are gone before the next ones come: a plan
/// holds one or two chunks of [chunk, V] f32. To do so it stands behind barriers of the stages first_stage, first_stage
/// + 1, .. Throws Error(Usage) for shapes that do not fit, and for more than 2^24 classes.
CrossEntropy cross_entropy(const Expr& hidden, const Expr& weight, const Expr& target, int64_t chunk,
                           int first_stage = 0);

/// One token's part of a loss, as a function of its negative log-probability.
struct TokenTerm {
  Expr loss;   ///< [m, 1]
  Expr slope;  ///< its derivative by the negative log-probability, [m, 1]
};
/// Of rows begin..end: `nll` [end - begin, 1] are their targets' negative log-probabilities.
using TokenTerms = std::function<TokenTerm(const Expr& nll, int64_t begin, int64_t end)>;

/// log of the sum of e^logit over each row of [rows, V], f32 [rows, 1]: the bits that the losses here subtract a
/// target's logit from. Error(Usage) for another shape.
Expr log_sum_exp(const Expr& logits);

/// A loss that is a sum over tokens, and its gradients.
struct TokenLoss {
  Expr loss;  ///< f32, rank 0
  Expr nll;   ///< f32 [rows]: -log softmax(hidden weight^T)[target]; what it is where there is no target means nothing
  Expr d_hidden;  ///< f32, hidden's shape
  Expr d_weight;  ///< f32 [V, D]
};

/// cross_entropy with any function of a token's log-probability in the place of its share of the mean. `terms` gives a
/// slope of 0 for a row whose target is negative.
TokenLoss token_loss(const Expr& hidden, const Expr& weight, const Expr& target, const TokenTerms& terms, int64_t chunk,
                     int first_stage = 0);

}  // namespace tenon::nn
