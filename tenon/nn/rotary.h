// Rotary position embeddings: two elements of a head turn by the angle of their position. In language models these are
// element i of its first half and element i of its second, in image transformers elements 2 i and 2 i + 1.
#pragma once
#include <span>

#include "tenon/expr/expr.h"

namespace tenon::nn {

/// Of every position: cosines, and sines with the sign that the other element of the pair takes along.
struct Rotary {
  Expr cos, sin;  ///< [B, T, 1, D]
};

/// Angles p theta^(-2 i / D), i < D / 2, of positions p [B,T] (f32 or whole numbers), in f32: at position p they are
/// right to p * 1e-7 radians. Stored as `act`. Throws Error(Usage) for an odd D.
Rotary rotary(const Expr& positions, int64_t depth, double theta, DType act);

/// Heads x [B,T,H,D] turned; yields f32.
Expr rotate(const Expr& x, const Rotary& by);

/// One axis of positions in space: the first `depth` elements of a head that no axis before it has turn by it.
struct RotaryAxis {
  Expr positions;  ///< [B,T], f32 or whole numbers
  int64_t depth = 0;
};
/// Tables for rotate_neighbours, f32: by its axis a, neighbours 2 j and 2 j + 1 of it turn by p theta^(-2 j / depth).
/// Throws Error(Usage) for an odd depth or positions that are no [B,T].
Rotary rotary(std::span<const RotaryAxis> axes, double theta);
/// Heads x [B,T,H,D], D the depths together, with neighbours turned; yields f32.
Expr rotate_neighbours(const Expr& x, const Rotary& by);

}  // namespace tenon::nn
