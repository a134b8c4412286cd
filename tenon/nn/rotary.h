// Rotary position embeddings of language models: element i of a head's first half and element i of its second half
// turn by the angle of their position.
#pragma once
#include "tenon/expr/expr.h"

namespace tenon::nn {

/// Of every position: cosines, and sines with the sign that the other half's element takes along.
struct Rotary {
  Expr cos, sin;  ///< [B, T, 1, D]
};

/// Angles p theta^(-2 i / D), i < D / 2, of positions p [B,T] (f32 or whole numbers), in f32: at position p they are
/// right to p * 1e-7 radians. Stored as `act`. Throws Error(Usage) for an odd D.
Rotary rotary(const Expr& positions, int64_t depth, double theta, DType act);

/// Heads x [B,T,H,D] turned; yields f32.
Expr rotate(const Expr& x, const Rotary& by);

}  // namespace tenon::nn
