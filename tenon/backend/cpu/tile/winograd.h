// 3x3 convolution with stride 1 by Winograd's F(4x4, 3x3): 36 products on transformed 6x6 tiles yield 16 outputs that
// take 144 in the direct sum, so f32 arithmetic runs at up to four times its direct rate. The points are 0,
// +-sqrt(1/2), +-sqrt(2) and infinity: half the rounding error of the usual 0, +-1, +-2. Error against fp64, relative
// to the root mean square of the outputs, 320 channels: 1.6e-6 rms, 1e-5 worst with f32 weights; 1.0e-3 rms with f16
// weights, against 2.3e-3 for direct bf16. Transformed weights have four times the elements of the plain ones: worth it
// for images that are large compared with the weights.
#pragma once
#include <cstdint>

#include "tenon/backend/cpu/tile/conv.h"

namespace tenon::cpu {

inline constexpr int kWinogradPoints = 36;
/// Precedes the packed weights; holds the factor that undoes their scaling.
inline constexpr int64_t kWinogradHeader = 64;

/// True for the shapes this driver supports: 3x3, stride 1.
bool winograd_legal(const ConvShape& shape);

/// Bytes of a transformed weight [o, c, 3, 3] stored as `type` (F32 or F16), 64-byte aligned.
int64_t winograd_weight_bytes(DType type, int64_t o, int64_t c);
/// Transforms and packs row-major 3x3 filters of type f32, f16, bf16 or e4m3. f16 weights are scaled by a
/// power of two that is stored in the packed operand.
void pack_winograd(ThreadPool& pool, const TileOps& ops, const void* src, DType src_type, const FilterShape& filters,
                   DType type, void* dst);

struct WinogradArgs {
  ConvShape shape;
  PixelSource x;  ///< as conv2d's
  const void* w;  ///< from pack_winograd
  DType w_type;   ///< F32 or F16
  TileFn out;     ///< as conv2d's
};

/// Exact scratch bytes that winograd2d() needs.
int64_t winograd_scratch_bytes(const ConvShape& shape, int threads);
/// `scratch`: 64-byte aligned, any contents. Arithmetic is f32. The bits do not depend on the number of threads.
void winograd2d(ThreadPool& pool, const TileOps& ops, const WinogradArgs& args, void* scratch);

}  // namespace tenon::cpu
