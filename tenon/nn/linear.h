// Linear layers and convolutions. Operands are rounded to the weight's type, which matrix units read. The result is the
// f32 accumulator plus an f32 bias, unrounded: the caller rounds where the value is stored.
#pragma once
#include <array>
#include <initializer_list>
#include <utility>

#include "tenon/nn/scope.h"

namespace tenon::nn {

enum class Bias { Yes, No };
/// Zero padding around an image.
struct Pads {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
  static Pads all(int64_t n) { return {n, n, n, n}; }
};

/// x w^T + b: x [.., K], w [N, K], b f32 [N] or empty; yields f32 [.., N].
Expr linear(const Expr& x, const Expr& w, const Expr& b = {});
/// Images x [N,H,W,C], w [O,C,kh,kw], b f32 [O] or empty; yields f32 [N,H',W',O]. A 1x1 filter applied to every pixel
/// becomes a linear layer over the channels.
Expr conv2d(const Expr& x, const Expr& w, const Expr& b, int64_t stride = 1, Pads pads = {});

/// linear with the scope's `weight` [outputs, K] and, if requested, `bias` [outputs].
Expr linear(const Scope& s, const Expr& x, int64_t outputs, Bias bias = Bias::Yes);
/// One product with the stacked weights of the named layers: x [.., K] yields f32 [.., all outputs together].
Expr packed_linear(const Scope& s, const Expr& x, std::initializer_list<std::pair<const char*, int64_t>> parts,
                   Bias bias = Bias::Yes);
/// conv2d with the scope's `weight` [outputs, C, kernel, kernel] and `bias` [outputs].
Expr conv2d(const Scope& s, const Expr& x, int64_t outputs, int64_t kernel, int64_t stride = 1, Pads pads = {});
/// A 3x3 convolution that keeps the image's size.
Expr conv3x3(const Scope& s, const Expr& x, int64_t outputs);

}  // namespace tenon::nn
