// Rounding points. They are part of a model's meaning: fused and unfused results agree to the bit since both round
// here.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// x rounded to attrs.dtype (nearest even), and stored in that type if it is stored. Gradient: straight through.
struct Cast : Pointwise<1> {
  static constexpr auto name = "cast";
  HD static auto eval(auto x) { return x; }
  static double round(const Attrs& attrs, double x) { return round_to(*attrs.dtype, x); }
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape) {
    TENON_CHECK(Usage, attrs.dtype, "cast") << "needs an element type";
    Pointwise::infer(in, attrs, shape);
  }
  static DType dtype(std::span<const Expr>, const Attrs& attrs) { return *attrs.dtype; }
  static auto vjp(auto g, auto) { return std::array{g}; }
};

/// x rounded to values of attrs.dtype but kept as f32.
struct Round : Cast {
  static constexpr auto name = "round";
  static DType dtype(std::span<const Expr>, const Attrs&) { return DType::F32; }
};

}  // namespace tenon::nodes

NODE(Cast)
NODE(Round)

namespace tenon {

/// x as element type t: rounded to it and stored in it. x itself if it has that type already.
inline Expr cast(const Expr& x, DType t) {
  if (x.dtype() == t) return x;
  return make_node<nodes::Cast>({x}, {.dtype = t});
}

/// x rounded to values of t but still f32: a rounding point inside a chain.
inline Expr round(const Expr& x, DType t) { return make_node<nodes::Round>({x}, {.dtype = t}); }

}  // namespace tenon
