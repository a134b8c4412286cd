// Low-rank branches beside linear layers (Hu et al. 2021, "LoRA"): y = W x + scale B (A x), with A [rank, K] and
// B [N, rank] as separate weights that can be trained, or exchanged, while W is fixed. With B = 0 the layer's results
// are unchanged, to the bit.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon::nn {

/// Which layers have a branch, by the last part of their names.
struct LowRank {
  int64_t rank = 0;                  ///< 0: no branches
  double scale = 1;                  ///< of B A: alpha / rank
  std::vector<std::string> targets;  ///< layers with a branch: "q_proj"

  bool has(std::string_view layer) const { return rank > 0 && std::ranges::find(targets, layer) != targets.end(); }
};

/// The same, by names of weights.
struct SideBranches {
  int64_t rank = 0;                                           ///< of every branch; 0: no branches
  std::shared_ptr<const std::set<std::string>> weights = {};  ///< names of weights with a branch
  double scale = 1;
};
/// Branches for the matrices that `root` reads and whose layers are targets of `adapter`.
SideBranches branches_of(const LowRank& adapter, const Expr& root);

/// Suffixes of the names of A and B, as in PEFT.
inline constexpr std::string_view kSideDown = ".lora_A.weight", kSideUp = ".lora_B.weight";
/// Names of A and B of the weight "<layer>.weight" [N, K]: "<layer>.lora_A.weight", "<layer>.lora_B.weight".
std::string side_down(std::string_view weight);
std::string side_up(std::string_view weight);
/// The weight whose A or B has this name; empty for any other name.
std::string weight_beside(std::string_view side);

/// `root` with a branch beside every linear layer whose weight is one of `branches.weights`, or a stack of weights that
/// contains some of them. A x is rounded to the weight's type, which A and B have too; sums are f32.
Expr with_side_branches(const Expr& root, const SideBranches& branches);
/// The same for several values of one graph.
std::vector<Expr> with_side_branches(std::span<const Expr> roots, const SideBranches& branches);

}  // namespace tenon::nn
