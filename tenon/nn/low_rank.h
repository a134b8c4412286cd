// Low-rank adapters beside linear layers (Hu et al. 2021, "LoRA"): y = W x + scale B (A x), A [rank, K], B [outputs,
// rank].
#pragma once
#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tenon/nn/scope.h"

namespace tenon::nn {

struct LowRank {
  int64_t rank = 0;                  ///< 0: there is none
  double scale = 1;                  ///< of B A: alpha / rank
  std::vector<std::string> targets;  ///< layers that have one, by the last part of their names

  bool has(std::string_view layer) const { return rank > 0 && std::ranges::find(targets, layer) != targets.end(); }
};

/// What adapters add to packed_linear(s, x, parts): f32 [.., all outputs together], 0 for parts that are no targets;
/// an unset Expr where no part is. Weights are "<part>.lora_A.weight" and "<part>.lora_B.weight" of the scope.
Expr low_rank(const Scope& s, const Expr& x, std::initializer_list<std::pair<const char*, int64_t>> parts,
              const LowRank& adapter);

}  // namespace tenon::nn
