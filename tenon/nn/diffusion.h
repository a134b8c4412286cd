// Blocks common to latent diffusion networks: the sinusoidal time embedding and the residual block.
#pragma once
#include "tenon/nn/norm.h"
#include "tenon/nn/scope.h"

namespace tenon::nn {

/// [cos(t f), sin(t f)] with f_k = exp(-ln(10000) k / (width/2 - shift)), k < width/2: t f32 [T] yields f32 [T, width].
/// Times may be fractional. `sin_first` swaps the halves.
Expr sinusoid(const Expr& t, int64_t width, double shift = 0, bool sin_first = false);

/// The time embedding of a whole schedule, and which of its rows to use.
struct TimeSignal {
  Expr embedding;  ///< [T, E], activated
  Expr step;       ///< i32 scalar, 0..T-1; unset: image i uses row i
};

/// h = conv1(silu(norm1 x)) + time_emb_proj(embedding)[step];  conv2(silu(norm2 h)) + (conv_shortcut x, or x).
/// x [N,H,W,I] stored as act; yields [N,H,W,outputs] stored as act. Without `time` there is no projection. The
/// projection covers the whole schedule, so it is computed once for all steps.
Expr residual_block(const Scope& s, const Expr& x, int64_t outputs, const GroupNorm& n,
                    const TimeSignal* time = nullptr);

}  // namespace tenon::nn
