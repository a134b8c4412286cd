// Rotary position embeddings rotate pairs of elements of a head by the angle of their position. In language models a
// pair is element i of the first half and element i of the second, in image transformers elements 2 i and 2 i + 1.
#pragma once
#include <span>

#include "tenon/expr/expr.h"

namespace tenon::nn {

/// Cosines of every position, and sines with the sign to apply to the other element of the pair.
struct Rotary {
  Expr cos, sin;  ///< [B, T, 1, D]
};

/// How fast pairs turn, for contexts longer than the model was first trained on. Of its speed f = theta^(-2 i / D),
/// pair i keeps the part k = clamp(offset + by_pair * i + by_speed * f, 0, 1); the rest is divided by the factor: it
/// turns by f (k + (1 - k) / factor) per position. The factories are the forms of transformers.
struct RotaryScaling {
  double factor = 1;     ///< 1: none
  double amplitude = 1;  ///< of cosines and sines
  double offset = 0, by_pair = 0, by_speed = 0;

  bool operator==(const RotaryScaling&) const = default;
  /// Llama 3.1: pairs that turn less than `slow` times in `length` positions are divided by the factor, those that turn
  /// more than `fast` times are not.
  static RotaryScaling by_turns(double factor, double slow, double fast, double length);
  /// YaRN: the same between two pairs; `first` and those before are not divided, `last` and those after are.
  static RotaryScaling between_pairs(double factor, double first, double last, double amplitude);
};

/// Angles p f, f = theta^(-2 i / D), i < D / 2, of positions p [B,T] (f32 or integers), in f32: accurate to p * 1e-7
/// radians at position p. Stored as `act`. Throws Error(Usage) for an odd D.
Rotary rotary(const Expr& positions, int64_t depth, double theta, const RotaryScaling& scaling, DType act);

/// Heads x [B,T,H,D], rotated; yields f32.
Expr rotate(const Expr& x, const Rotary& by);

/// One axis of positions in space; it rotates the next `depth` elements of a head, after those of preceding axes.
struct RotaryAxis {
  Expr positions;  ///< [B,T], f32 or integers
  int64_t depth = 0;
};
/// Tables for rotate_neighbours, f32: neighbours 2 j and 2 j + 1 of an axis are rotated by p theta^(-2 j / depth).
/// Throws Error(Usage) for an odd depth or positions not of shape [B,T].
Rotary rotary(std::span<const RotaryAxis> axes, double theta);
/// Heads x [B,T,H,D], D the sum of depths, with neighbours rotated; yields f32.
Expr rotate_neighbours(const Expr& x, const Rotary& by);

}  // namespace tenon::nn
