// Random networks: the building blocks of models, in combinations that no model has. Deterministic for a seed.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tenon/core/host_tensor.h"
#include "tenon/expr/expr.h"
#include "tenon/plan/plan.h"

namespace tenon::planned {

/// A network and its graph.
struct Program {
  std::shared_ptr<Graph> graph;
  std::vector<Result> results;

  std::vector<Expr> roots() const;
  /// One line per node, as expressions print.
  std::string text() const;
};

/// Limits on the size of a program.
struct ProgramSize {
  int steps = 8;            ///< most layers and pieces of maths
  int64_t elements = 6000;  ///< of a tensor
};

Program random_program(uint32_t seed, const ProgramSize& size = {});
/// The program with the arithmetic of its anchors set by a policy.
Program with_precision(const Program& program, const PrecisionPolicy& policy, bool copies = false);

/// The value of a leaf, determined by its name, type and shape. Floats are normally distributed, weights scaled so that
/// products keep their operands' magnitude; among those named "odd.." are infinities and NaNs. Integers named
/// "index<n>.." are below n, those named "place<n>.." are different ones. "rule.." are rules for drawing tokens.
HostTensor leaf_tensor(const Expr& leaf);
/// leaf_tensor of every memory leaf below the roots.
std::map<std::string, HostTensor> leaf_tensors(std::span<const Expr> roots);

}  // namespace tenon::planned
