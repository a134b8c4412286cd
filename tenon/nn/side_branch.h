// Low-rank branches beside linear layers: y + B (A x), with A and B as weights of their own, so that what they hold can
// change while the layer's weight stays. With B = 0 the layer is what it was, to the bit.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "tenon/expr/expr.h"

namespace tenon::nn {

struct SideBranches {
  int64_t rank = 0;                                      ///< of every branch; 0: there are none
  std::shared_ptr<const std::set<std::string>> weights;  ///< names of the weights that get one
};

/// Names of A [rank, K] and B [N, rank] of the weight "<layer>.weight" [N, K]: "<layer>.lora_A", "<layer>.lora_B".
std::string side_down(std::string_view weight);
std::string side_up(std::string_view weight);

/// `root` with a branch beside every linear layer whose weight is one of `branches.weights`, or is several of them one
/// below the other. A x is rounded to the weight's type, in which A and B are too; sums are f32.
Expr with_side_branches(const Expr& root, const SideBranches& branches);

}  // namespace tenon::nn
