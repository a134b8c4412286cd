// Valid nodes of any pointwise, view or reduce type, found by trying operands and attributes, so that a new node is
// tested without new test code. Also fp64 values for their leaves.
#pragma once
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tenon/expr/ops.h"
#include "tenon/oracle/oracle.h"

namespace tenon::testing {

using Values = std::map<std::string, std::vector<double>>;

/// An oracle that reads the leaves named in `values`.
inline Oracle oracle_of(const Values& values) {
  return Oracle([&values](const Expr& leaf) { return values.at(leaf->attrs.text); });
}

/// Up to `wanted` different nodes of `type`, each over its own f64 inputs (and i32 index inputs).
std::vector<Expr> sample_nodes(Graph& g, const NodeType& type, size_t wanted, uint32_t seed = 1);

/// Values for every memory leaf below `root`: floats in [low, high), integers 0 or 1.
Values random_values(const Expr& root, double low, double high, uint32_t seed = 1);

/// Every type of a family.
std::vector<const NodeType*> types_of(Family family);

}  // namespace tenon::testing
