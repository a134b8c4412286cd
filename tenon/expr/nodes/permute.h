// Views that reorder: permute axes, reverse an axis, swap neighbours.
#pragma once
#include <algorithm>
#include <numeric>

#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// 0, 1, .., rank - 1.
inline std::vector<int64_t> axes_in_order(const Shape& shape) {
  std::vector<int64_t> axes(static_cast<size_t>(shape.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

/// Axis i of the result is axis ints[i] of the operand.
struct Permute : View {
  static constexpr auto name = "permute";
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape) {
    const Shape& from = in[0].shape();
    TENON_CHECK(Usage, std::ranges::is_permutation(attrs.ints, axes_in_order(from)), "permute")
        << "axes are not a permutation of the " << from.rank() << " axes of " << from.str();
    for (int i = 0; i < from.rank(); ++i) shape[i] = from[static_cast<int>(attrs.ints[static_cast<size_t>(i)])];
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    Indices x{};
    for (size_t i = 0; i < n.attrs.ints.size(); ++i) x[static_cast<size_t>(n.attrs.ints[i])] = c[i];
    a.read(0, x);
  }
  static Expr inverse(const Node& n, const Expr& y) {
    std::vector<int64_t> back(n.attrs.ints.size());
    for (size_t i = 0; i < back.size(); ++i) back[static_cast<size_t>(n.attrs.ints[i])] = static_cast<int64_t>(i);
    return make_node<Permute>({y}, {.ints = std::move(back)});
  }
};

/// One axis reversed. ints = axis.
struct Flip : View {
  static constexpr auto name = "flip";
  static void infer(std::span<const Expr>, const Attrs& attrs, Shape& shape) {
    TENON_CHECK(Usage, attrs.ints.size() == 1 && attrs.ints[0] >= 0 && attrs.ints[0] < shape.rank(), "flip")
        << "needs an axis inside " << shape.str();
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    Index& i = c[static_cast<size_t>(n.attrs.ints[0])];
    i = a.reversed(i, n.shape[static_cast<int>(n.attrs.ints[0])]);
    a.read(0, c);
  }
  static Expr inverse(const Node& n, const Expr& y) { return make_node<Flip>({y}, n.attrs); }
};

/// Swaps elements 2i and 2i + 1 of the last axis, as interleaved rotary embeddings need.
struct PairSwap : View {
  static constexpr auto name = "pair_swap";
  static void infer(std::span<const Expr>, const Attrs&, Shape& shape) {
    TENON_CHECK(Usage, shape.rank() >= 1 && shape[-1] % 2 == 0, "pair_swap")
        << "needs pairs along the last axis, got " << shape.str();
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    Index& i = c[static_cast<size_t>(n.shape.rank() - 1)];
    const auto [pair, place] = a.halved(i);
    i = a.sum(a.times(pair, 2), a.reversed(place, 2));
    a.read(0, c);
  }
  static Expr inverse(const Node&, const Expr& y) { return make_node<PairSwap>({y}); }
};

}  // namespace tenon::nodes

NODE(Permute)
NODE(Flip)
NODE(PairSwap)

namespace tenon {

/// x with its axes reordered: axis i of the result is axis axes[i] of x. x itself for the identity.
inline Expr permute(const Expr& x, std::vector<int64_t> axes) {
  if (axes == nodes::axes_in_order(x.shape())) return x;
  return make_node<nodes::Permute>({x}, {.ints = std::move(axes)});
}

/// x with its last two axes swapped.
inline Expr transpose(const Expr& x) {
  std::vector<int64_t> axes = nodes::axes_in_order(x.shape());
  TENON_CHECK(Usage, axes.size() >= 2, "transpose") << "needs two axes, got " << x.shape().str();
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return permute(x, std::move(axes));
}

/// Moves `axis` (negative: from the last) last, applies f, and moves the axis back.
template <class F>
Expr with_axis_last(const Expr& x, int axis, const F& f) {
  axis = x.shape().axis(axis, "permute");
  std::vector<int64_t> last = nodes::axes_in_order(x.shape()), back = last;
  std::rotate(last.begin() + axis, last.begin() + axis + 1, last.end());
  std::rotate(back.begin() + axis, back.end() - 1, back.end());
  return permute(f(permute(x, std::move(last))), std::move(back));
}

/// x with the order of `axis` (negative: from the last) reversed.
inline Expr flip(const Expr& x, int axis) {
  return make_node<nodes::Flip>({x}, {.ints = {x.shape().axis(axis, "flip")}});
}

/// x [.., 2n] with elements 2i and 2i + 1 of the last axis swapped.
inline Expr pair_swap(const Expr& x) { return make_node<nodes::PairSwap>({x}); }

}  // namespace tenon
