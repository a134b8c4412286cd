// Permutation of axes: out axis i is in axis ints[i].
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

struct Permute : View {
  static constexpr auto name = "permute";
  static constexpr int kArity = 1;
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape, DType& dtype) {
    const Shape& from = in[0].shape();
    std::vector<bool> seen(static_cast<size_t>(from.rank()));
    bool good = attrs.ints.size() == seen.size();
    shape = from;
    for (size_t i = 0; good && i < seen.size(); ++i) {
      const int64_t a = attrs.ints[i];
      good = a >= 0 && a < from.rank() && !seen[static_cast<size_t>(a)];
      if (!good) break;
      seen[static_cast<size_t>(a)] = true;
      shape[static_cast<int>(i)] = from[static_cast<int>(a)];
    }
    TENON_CHECK(Usage, good, "permute") << "axes are not a permutation of the " << from.rank() << " axes of "
                                        << from.str();
    dtype = in[0].dtype();
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    Indices x{};
    for (size_t i = 0; i < n.attrs.ints.size(); ++i) x[static_cast<size_t>(n.attrs.ints[i])] = c[i];
    a.read(0, x);
  }
  static bool invertible(const Node&) { return true; }
  static Expr inverse(const Node& n, const Expr& y);
  static std::vector<Expr> vjp(const Expr& node, const Expr& g) { return {inverse(*node, g)}; }
};

}  // namespace tenon::nodes

NODE(Permute)

namespace tenon {

/// x with its axes reordered: out axis i is in axis axes[i]. x itself for the identity.
inline Expr permute(const Expr& x, std::vector<int64_t> axes) {
  bool identity = static_cast<int>(axes.size()) == x.shape().rank();
  for (size_t i = 0; i < axes.size(); ++i) identity = identity && axes[i] == static_cast<int64_t>(i);
  if (identity) return x;
  Attrs a;
  a.ints = std::move(axes);
  return x.graph().make(node_type<nodes::Permute>(), std::array{x}, a);
}

/// x with its last two axes swapped.
inline Expr transpose(const Expr& x) {
  std::vector<int64_t> axes;
  for (int i = 0; i < x.shape().rank(); ++i) axes.push_back(i);
  TENON_CHECK(Usage, axes.size() >= 2, "transpose") << "needs two axes, got " << x.shape().str();
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return permute(x, std::move(axes));
}

inline Expr nodes::Permute::inverse(const Node& n, const Expr& y) {
  std::vector<int64_t> back(n.attrs.ints.size());
  for (size_t i = 0; i < back.size(); ++i) back[static_cast<size_t>(n.attrs.ints[i])] = static_cast<int64_t>(i);
  return permute(y, std::move(back));
}

}  // namespace tenon
