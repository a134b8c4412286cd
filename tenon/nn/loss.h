// Losses of training.
#pragma once
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

}  // namespace tenon::nn
