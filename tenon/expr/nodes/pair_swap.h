// Pair swap: elements 2i and 2i + 1 of the last axis change places, as interleaved rotary embeddings want them.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

struct PairSwap : View {
  static constexpr auto name = "pair_swap";
  static constexpr int kArity = 1;
  static void infer(std::span<const Expr> in, const Attrs&, Shape& shape, DType& dtype) {
    shape = in[0].shape();
    TENON_CHECK(Usage, shape.rank() >= 1 && shape[-1] % 2 == 0, "pair_swap")
        << "needs pairs along the last axis, got " << shape.str();
    dtype = in[0].dtype();
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    Index& i = c[static_cast<size_t>(n.shape.rank() - 1)];
    const auto [pair, place] = a.halved(i);
    i = a.sum(a.times(pair, 2), a.reversed(place, 2));
    a.read(0, c);
  }
  static bool invertible(const Node&) { return true; }
  static Expr inverse(const Node& n, const Expr& y);
  static std::vector<Expr> vjp(const Expr& node, const Expr& g) { return {inverse(*node, g)}; }
};

}  // namespace tenon::nodes

NODE(PairSwap)

namespace tenon {

/// x [.., 2n] with elements 2i and 2i + 1 of the last axis exchanged.
inline Expr pair_swap(const Expr& x) { return x.graph().make(node_type<nodes::PairSwap>(), std::array{x}); }

inline Expr nodes::PairSwap::inverse(const Node&, const Expr& y) { return pair_swap(y); }

}  // namespace tenon
