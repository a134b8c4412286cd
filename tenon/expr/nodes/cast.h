// Rounding points. They are part of a model's meaning: fused and unfused agree to the bit because both round here.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// x rounded to attrs.dtype (nearest even), and stored as that type where it is stored. Gradient: straight through.
struct Cast : Pointwise<1> {
  static constexpr auto name = "cast";
  template <class V>
  HD static V eval(V x) {
    return x;
  }
  static double round(const Attrs& attrs, double x) { return round_to(attrs.dtype, x); }
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape, DType& dtype) {
    TENON_CHECK(Usage, attrs.has_dtype, "cast") << "needs an element type";
    shape = in[0].shape();
    dtype = attrs.dtype;
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E) {
    return {g};
  }
};

/// x rounded to the values of attrs.dtype but kept as f32.
struct Round : Cast {
  static constexpr auto name = "round";
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape, DType& dtype) {
    Cast::infer(in, attrs, shape, dtype);
    dtype = DType::F32;
  }
};

}  // namespace tenon::nodes

NODE(Cast)
NODE(Round)

namespace tenon {

/// x as element type t: a rounding point and a storage type. x itself if it has that type already.
inline Expr cast(const Expr& x, DType t) {
  if (x.dtype() == t) return x;
  Attrs a;
  a.has_dtype = true;
  a.dtype = t;
  return x.graph().make(node_type<nodes::Cast>(), std::array{x}, a);
}

/// x rounded to the values of t, still f32: a rounding point inside a chain.
inline Expr round(const Expr& x, DType t) {
  Attrs a;
  a.has_dtype = true;
  a.dtype = t;
  return x.graph().make(node_type<nodes::Round>(), std::array{x}, a);
}

}  // namespace tenon
