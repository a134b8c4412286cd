// Leaves: memory supplied by the caller, weights, run-time scalars, literals and coordinates.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

struct MemoryLeaf : Leaf {
  static void infer(std::span<const Expr>, const Attrs& attrs, Shape& shape) {
    TENON_CHECK(Usage, attrs.dtype && attrs.dims && !attrs.text.empty(), "leaf")
        << "needs a name, an element type and a shape";
    shape = *attrs.dims;
  }
};
/// Supplied at each run; ints[0] is its Rate.
struct Input : MemoryLeaf {
  static constexpr auto name = "input";
};
/// A weight, constant over the life of a plan.
struct Param : MemoryLeaf {
  static constexpr auto name = "param";
};
/// Rank 0, supplied at each run; ints[0] is its Rate.
struct ScalarInput : MemoryLeaf {
  static constexpr auto name = "scalar";
};
/// Outlives runs; ints[0] is its Rate, ints[1], if present, how many updates it includes (state.h).
struct State : MemoryLeaf {
  static constexpr auto name = "state";
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape) {
    MemoryLeaf::infer(in, attrs, shape);
    TENON_CHECK(Usage, attrs.ints.size() < 2 || (attrs.ints.size() == 2 && attrs.ints[1] > 0), "state")
        << "needs a rate and a number of updates of at least 1";
  }
};
/// A literal: nums[0].
struct Constant : Leaf {
  static constexpr auto name = "constant";
  static void infer(std::span<const Expr>, const Attrs& attrs, Shape& shape) {
    TENON_CHECK(Usage, attrs.nums.size() == 1, "constant") << "needs one number";
    shape = {};
  }
};
/// 0, 1, .., n-1; dims = [n].
struct Iota : Leaf {
  static constexpr auto name = "iota";
  static void infer(std::span<const Expr>, const Attrs& attrs, Shape& shape) {
    TENON_CHECK(Usage, attrs.dims && attrs.dims->rank() == 1, "iota") << "needs a shape of rank 1";
    shape = *attrs.dims;
  }
  static DType dtype(std::span<const Expr>, const Attrs&) { return DType::I32; }
};

}  // namespace tenon::nodes

NODE(Input)
NODE(Param)
NODE(ScalarInput)
NODE(State)
NODE(Constant)
NODE(Iota)
