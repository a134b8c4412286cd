// The memory behind a launch's leaves: each leaf has a number, and a run passes a table of addresses indexed by it.
#pragma once
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon::cpu {

/// Addresses of the leaves' first elements, by leaf number; elements are row-major.
using Bases = const void* const*;

/// Numbers leaves. Literals (constant, iota) are materialised here, so that loads are the same for every leaf.
class LeafTable {
 public:
  /// The number of `leaf`; the first call assigns it.
  int add(const Expr& leaf);
  int size() const { return static_cast<int>(leaves_.size()); }
  const Expr& leaf(int i) const { return leaves_[static_cast<size_t>(i)]; }
  /// The number of an added leaf, or -1.
  int find(const Expr& leaf) const;
  /// The elements of a literal leaf; nullptr for the caller's memory.
  const void* literal(int i) const;

 private:
  std::vector<Expr> leaves_;
  std::deque<std::vector<std::byte>> literals_;  // by leaf; empty for the caller's memory
};

}  // namespace tenon::cpu
