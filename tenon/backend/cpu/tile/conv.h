// 2-D convolution of NHWC images with the holes of gemm.h: an implicit matrix product that never builds the im2col
// matrix.
#pragma once
#include <cstdint>

#include "tenon/backend/cpu/tile/gemm.h"

namespace tenon::cpu {

/// Geometry of a convolution, in pixels. h, w, c: what the prologue supplies (after any upsampling).
struct ConvShape {
  int64_t n = 1, h = 0, w = 0, c = 0, o = 0;
  int kh = 3, kw = 3, stride = 1;
  int pad_t = 1, pad_l = 1, pad_b = 1, pad_r = 1;

  FilterShape filters() const { return {o, c, kh, kw}; }
  int64_t out_h() const { return (h + pad_t + pad_b - kh) / stride + 1; }
  int64_t out_w() const { return (w + pad_l + pad_r - kw) / stride + 1; }
  int64_t out_pixels() const { return n * out_h() * out_w(); }
};

/// Prologue: writes the f32 pixels x0 <= x < x1 of image n, row y, all channels, to dst (`ld` elements between pixels,
/// 64-byte aligned, ld a multiple of 16). A pixel may be requested more than once (halos). Padding is never requested:
/// its zeros are added after the prologue.
using PixelsFn = FunctionRef<void(int64_t n, int64_t y, int64_t x0, int64_t x1, float* dst, int64_t ld, int thread)>;

/// Pixels of the input: memory (f32, bf16 or f16; pixel (n, y, x) at element ((n * h + y) * w + x) * ld) or a callback.
struct PixelSource {
  const void* data = nullptr;
  DType type = DType::F32;
  int64_t ld = 0;
  PixelsFn pixels;
};

struct ConvArgs {
  ConvShape shape;
  PixelSource x;
  PackedB w;   ///< from pack_conv (conv_shape)
  TileFn out;  ///< row = linear output pixel (n * out_h + y) * out_w + x; tiles are runs of consecutive pixels
};

/// Exact scratch bytes that conv2d() needs. `type`: the weights' type, i.e. the arithmetic.
int64_t conv_scratch_bytes(const ConvShape& shape, DType type, int threads);
/// `scratch`: conv_scratch_bytes(...) bytes, 64-byte aligned, any contents. The bits do not depend on the number of
/// threads.
void conv2d(ThreadPool& pool, const TileOps& ops, const ConvArgs& args, void* scratch);

}  // namespace tenon::cpu
