#include "tenon/nn/diffusion.h"

#include <cmath>

#include "tenon/expr/ops.h"
#include "tenon/nn/linear.h"

namespace tenon::nn {

Expr sinusoid(const Expr& t, int64_t width, double shift, bool sin_first) {
  TENON_CHECK(Usage, width > 0 && width % 2 == 0, "sinusoid") << "the width must be even, got " << width;
  const int64_t half = width / 2;
  const Expr frequency = exp(iota(t.graph(), half) * (-std::log(10000.0) / (static_cast<double>(half) - shift)));
  const Expr angle = reshape(t, {t.shape().numel(), 1}) * frequency;
  return sin_first ? concat({sin(angle), cos(angle)}, -1) : concat({cos(angle), sin(angle)}, -1);
}

Expr residual_block(const Scope& s, const Expr& x, int64_t outputs, const GroupNorm& n, const TimeSignal* time) {
  Expr h = conv3x3(s / "conv1", silu(group_norm(s / "norm1", x, n)), outputs);
  if (time) {
    const Expr rows = linear(s / "time_emb_proj", time->embedding, outputs);
    h = h + (time->step ? gather(rows, time->step) : reshape(rows, {rows.shape()[0], 1, 1, outputs}));
  }
  h = cast(h, s.act());
  const Expr skip = x.shape()[-1] == outputs ? x : cast(conv2d(s / "conv_shortcut", x, outputs, 1), s.act());
  return cast(conv3x3(s / "conv2", silu(group_norm(s / "norm2", h, n)), outputs) + skip, s.act());
}

}  // namespace tenon::nn
