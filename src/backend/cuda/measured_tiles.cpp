// Measured on an NVIDIA H200 (132 multiprocessors, driver 580.159, 2026-11-21) by TENON_CUDA_TUNE=1: the products of
// Stable Diffusion 1.5 at 512 x 512. The number is the time of one launch.
#include "tenon/backend/cuda/tile_table.h"

namespace tenon::cuda {

std::string_view measured_tiles(std::string_view arch) {
  constexpr std::string_view kSm90a = R"(
conv2d 2x16x16x1280 -> 16x16x1280 by 3x3x1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 4  # 32.17 us
conv2d 2x16x16x1280 -> 8x8x1280 by 3x3x2 lanes 1 bytes 2 = wgmma 64x64 stages 5 resident 2 splits 6  # 18.78 us
conv2d 2x16x16x1920 -> 16x16x1280 by 3x3x1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 4  # 42.37 us
conv2d 2x16x16x2560 -> 16x16x1280 by 3x3x1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 4  # 52.71 us
conv2d 2x16x16x640 -> 16x16x1280 by 3x3x1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 4  # 21.53 us
conv2d 2x32x32x1280 -> 32x32x1280 by 3x3x1 lanes 1 bytes 2 = mma 128x64 warps 2x2 bytes 64 stages 4 splits 1  # 196.14 us
conv2d 2x32x32x1280 -> 32x32x640 by 3x3x1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 2  # 50.02 us
conv2d 2x32x32x1920 -> 32x32x640 by 3x3x1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 2  # 71.28 us
conv2d 2x32x32x320 -> 32x32x640 by 3x3x1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 2  # 20.09 us
conv2d 2x32x32x640 -> 16x16x640 by 3x3x2 lanes 1 bytes 2 = wgmma 64x160 stages 6 resident 1 splits 4  # 16.09 us
conv2d 2x32x32x640 -> 32x32x640 by 3x3x1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 2  # 29.98 us
conv2d 2x32x32x960 -> 32x32x640 by 3x3x1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 2  # 39.97 us
conv2d 2x64x64x320 -> 32x32x320 by 3x3x2 lanes 1 bytes 2 = wgmma 64x160 stages 6 resident 1 splits 2  # 15.24 us
conv2d 2x64x64x320 -> 64x64x320 by 3x3x1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 1  # 25.35 us
conv2d 2x64x64x320 -> 64x64x4 by 3x3x1 lanes 1 bytes 2 = wgmma 64x32 stages 6 resident 2 splits 2  # 15.24 us
conv2d 2x64x64x640 -> 64x64x320 by 3x3x1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 1  # 45.74 us
conv2d 2x64x64x640 -> 64x64x640 by 3x3x1 lanes 1 bytes 2 = mma 128x64 warps 2x2 bytes 64 stages 4 splits 1  # 166.02 us
conv2d 2x64x64x8 -> 64x64x320 by 3x3x1 lanes 1 bytes 2 = mma 128x64 warps 2x2 bytes 64 stages 4 splits 1  # 9.71 us
conv2d 2x64x64x960 -> 64x64x320 by 3x3x1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 1  # 66.94 us
conv2d 2x8x8x1280 -> 8x8x1280 by 3x3x1 lanes 1 bytes 2 = wgmma 128x96 stages 6 resident 1 splits 8  # 18.85 us
conv2d 2x8x8x2560 -> 8x8x1280 by 3x3x1 lanes 1 bytes 2 = wgmma 128x96 stages 6 resident 1 splits 9  # 27.84 us
gemm 128x10240x1280 batch 1 lanes 2 bytes 2 = wgmma 128x96 stages 6 resident 1 splits 1  # 12.29 us
gemm 128x1280x1280 batch 1 lanes 1 bytes 2 = wgmma 64x32 stages 6 resident 2 splits 3  # 6.33 us
gemm 128x1280x2560 batch 1 lanes 1 bytes 2 = wgmma 64x32 stages 6 resident 2 splits 3  # 8.03 us
gemm 128x1280x5120 batch 1 lanes 1 bytes 2 = wgmma 64x64 stages 5 resident 2 splits 6  # 11.43 us
gemm 128x3840x1280 batch 1 lanes 1 bytes 2 = wgmma 64x32 stages 6 resident 2 splits 1  # 7.84 us
gemm 154x2304x768 batch 1 lanes 1 bytes 2 = wgmma 64x32 stages 6 resident 2 splits 1  # 5.89 us
gemm 154x24960x768 batch 1 lanes 1 bytes 2 = wgmma 64x160 stages 3 resident 2 splits 1  # 21.04 us
gemm 154x3072x768 batch 1 lanes 1 bytes 2 = wgmma 64x64 stages 5 resident 2 splits 1  # 6.50 us
gemm 154x768x3072 batch 1 lanes 1 bytes 2 = wgmma 64x32 stages 6 resident 2 splits 3  # 9.09 us
gemm 154x768x768 batch 1 lanes 1 bytes 2 = wgmma 64x32 stages 6 resident 2 splits 1  # 5.48 us
gemm 2048x1920x640 batch 1 lanes 1 bytes 2 = wgmma 256x128 stages 3 resident 1 splits 1  # 11.26 us
gemm 2048x5120x640 batch 1 lanes 2 bytes 2 = wgmma 128x128 stages 5 resident 1 splits 1  # 34.86 us
gemm 2048x640x1280 batch 1 lanes 1 bytes 2 = wgmma 64x160 stages 6 resident 1 splits 1  # 9.54 us
gemm 2048x640x1920 batch 1 lanes 1 bytes 2 = wgmma 128x96 stages 6 resident 1 splits 1  # 12.46 us
gemm 2048x640x2560 batch 1 lanes 1 bytes 2 = wgmma 128x96 stages 6 resident 1 splits 1  # 16.33 us
gemm 2048x640x320 batch 1 lanes 1 bytes 2 = wgmma 64x96 stages 4 resident 2 splits 1  # 5.33 us
gemm 2048x640x640 batch 1 lanes 1 bytes 2 = wgmma 64x160 stages 6 resident 1 splits 1  # 6.23 us
gemm 2048x640x960 batch 1 lanes 1 bytes 2 = wgmma 64x160 stages 6 resident 1 splits 1  # 8.00 us
gemm 20x1280x1280 batch 1 lanes 1 bytes 2 = mma 32x64 warps 1x4 bytes 128 stages 4 splits 4  # 6.10 us
gemm 20x1280x320 batch 1 lanes 1 bytes 2 = wgmma 64x32 stages 6 resident 2 splits 1  # 2.92 us
gemm 20x20160x1280 batch 1 lanes 1 bytes 2 = wgmma 64x96 stages 4 resident 2 splits 1  # 23.38 us
gemm 512x10240x1280 batch 1 lanes 2 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 1  # 28.27 us
gemm 512x1280x1280 batch 1 lanes 1 bytes 2 = wgmma 64x128 stages 6 resident 1 splits 1  # 8.57 us
gemm 512x1280x1920 batch 1 lanes 1 bytes 2 = wgmma 128x64 stages 6 resident 1 splits 1  # 10.80 us
gemm 512x1280x2560 batch 1 lanes 1 bytes 2 = wgmma 128x96 stages 6 resident 1 splits 2  # 13.23 us
gemm 512x1280x5120 batch 1 lanes 1 bytes 2 = wgmma 128x128 stages 5 resident 1 splits 3  # 18.43 us
gemm 512x1280x640 batch 1 lanes 1 bytes 2 = wgmma 64x64 stages 5 resident 2 splits 1  # 5.91 us
gemm 512x3840x1280 batch 1 lanes 1 bytes 2 = wgmma 128x128 stages 5 resident 1 splits 1  # 10.27 us
gemm 8192x2560x320 batch 1 lanes 2 bytes 2 = wgmma 256x128 stages 3 resident 1 splits 1  # 49.99 us
gemm 8192x320x1280 batch 1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 1  # 14.07 us
gemm 8192x320x320 batch 1 lanes 1 bytes 2 = wgmma 64x160 stages 3 resident 2 splits 1  # 6.29 us
gemm 8192x320x640 batch 1 lanes 1 bytes 2 = wgmma 64x160 stages 3 resident 2 splits 1  # 9.61 us
gemm 8192x320x960 batch 1 lanes 1 bytes 2 = wgmma 128x160 stages 5 resident 1 splits 1  # 12.40 us
gemm 8192x960x320 batch 1 lanes 1 bytes 2 = wgmma 256x128 stages 3 resident 1 splits 1  # 14.34 us
)";
  return arch == "sm_90a" ? kSm90a : std::string_view();
}

}  // namespace tenon::cuda
