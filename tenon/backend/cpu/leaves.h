// The memory behind the leaves of a launch: each leaf gets a number, and a run passes one table of addresses by number.
#pragma once
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon::cpu {

/// Addresses of the leaves' first elements, by leaf number; elements are row-major.
using Bases = const void* const*;

/// Numbers leaves. Literals (constant, iota) are made here as memory, so that a load is the same for every leaf.
class LeafTable {
 public:
  /// The number of `leaf`, given on its first call.
  int add(const Expr& leaf);
  int size() const { return static_cast<int>(leaves_.size()); }
  const Expr& leaf(int i) const { return leaves_[static_cast<size_t>(i)]; }
  /// The number of a leaf that was added, or -1.
  int find(const Expr& leaf) const;
  /// The elements of a literal leaf, nullptr for memory of the caller.
  const void* literal(int i) const;

 private:
  std::vector<Expr> leaves_;
  std::deque<std::vector<std::byte>> literals_;  // by leaf; empty for memory of the caller
};

}  // namespace tenon::cpu
