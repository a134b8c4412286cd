// Host side of the tensor-core kernels: what a kernel call needs, and the boxes of operands that TMA loads. Formulas
// only.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/device/products/core_sizes.h"

namespace tenon::cuda {

/// What a kernel call needs: its shape, and the memory of its SplitK (none with one split).
struct CallNeeds {
  CallShape shape;
  int64_t workspace_bytes = 0;
  int64_t counters = 0;  ///< of 4 bytes, zero before the first call
};

/// GemmSizes::range of a product: a multiple of 64.
inline int sum_range(int k) {
  const int blocks = (k + 63) / 64, ranges = device::kSumRanges;
  return (blocks + ranges - 1) / ranges * 64;
}

/// An operand of gemm_wgmma: `rows` (over all batches) of `columns` elements, `row_bytes` apart. Boxes of `box_rows`:
/// the tile's m for A, its rows_of_b for a B stored permuted.
inline TensorBox rows_box(const void* address, int element_bytes, int64_t rows, int64_t columns, int64_t row_bytes,
                          int box_rows) {
  return {.address = const_cast<void*>(address),
          .element_bytes = element_bytes,
          .rank = 2,
          .extent = {columns, rows},
          .stride_bytes = {element_bytes, row_bytes},
          .box = {128 / element_bytes, box_rows},
          .swizzle_bytes = 128};
}

/// Operand B of gemm_wgmma if not stored permuted: `rows` (over all batches, a multiple of 8) of `columns` elements,
/// `row_bytes` apart. Boxes of 32 rows, which the box dimensions permute: 2 adjacent rows, then rows 8 apart,
/// then rows 2 apart.
inline TensorBox permuting_box(const void* address, int element_bytes, int64_t rows, int64_t columns,
                               int64_t row_bytes) {
  return {.address = const_cast<void*>(address),
          .element_bytes = element_bytes,
          .rank = 4,
          .extent = {columns, 2, rows / 8, 4},
          .stride_bytes = {element_bytes, row_bytes, 8 * row_bytes, 2 * row_bytes},
          .box = {128 / element_bytes, 2, 4, 4},
          .swizzle_bytes = 128};
}

/// Chooses the box of output pixels for a convolution's tiles that leaves the fewest of a tile's `rows` unused.
inline void choose_box(int rows, device::ConvSizes& c) {
  int64_t best = 0;
  for (int width = 1; width <= std::min({rows, c.out_width, 256}); ++width) {
    const int height = std::min(c.out_height, rows / width), images = std::min(c.batch, rows / (width * height));
    const auto tiles = [](int whole, int part) { return (whole + part - 1) / part; };
    const int64_t count = int64_t{tiles(c.out_width, width)} * tiles(c.out_height, height) * tiles(c.batch, images);
    if (best == 0 || count <= best) best = count, c.box_width = width, c.box_height = height, c.box_images = images;
  }
}
/// True if conv_wgmma supports it: stride 1, or stride 2 with even width and height and channels in whole 128-byte
/// K tiles (one tensor).
inline bool conv_fits_boxes(const device::ConvSizes& c, int element_bytes) {
  if (c.channels * element_bytes % 16 != 0) return false;
  return c.stride == 1 ||
         (c.stride == 2 && c.width % 2 == 0 && c.height % 2 == 0 && c.channels * element_bytes % 128 == 0);
}
/// The input of conv_wgmma, or one of several joined inputs: `channels` of each pixel.
inline TensorBox pixels_box(const void* address, int element_bytes, const device::ConvSizes& c, int channels) {
  const int64_t pixel = int64_t{channels} * element_bytes, line = pixel * c.width, image = line * c.height;
  void* const at = const_cast<void*>(address);
  if (c.stride == 1)
    return {.address = at,
            .element_bytes = element_bytes,
            .rank = 4,
            .extent = {channels, c.width, c.height, c.batch},
            .stride_bytes = {element_bytes, pixel, line, image},
            .box = {128 / element_bytes, c.box_width, c.box_height, c.box_images},
            .swizzle_bytes = 128};
  return {.address = at,
          .element_bytes = element_bytes,
          .rank = 5,
          .extent = {2 * channels, c.width / 2, 2, c.height / 2, c.batch},
          .stride_bytes = {element_bytes, 2 * pixel, line, 2 * line, image},
          .box = {128 / element_bytes, c.box_width, 1, c.box_height, c.box_images},
          .swizzle_bytes = 128};
}
/// Weights of conv_wgmma, [rows][kernel_h * kernel_w][channels], stored permuted; boxes of `box_rows`, the tile's
/// rows_of_b.
inline TensorBox taps_box(const void* address, int element_bytes, const device::ConvSizes& c, int64_t rows,
                          int box_rows) {
  const int64_t tap = int64_t{c.channels} * element_bytes, taps = int64_t{c.kernel_h} * c.kernel_w;
  return {.address = const_cast<void*>(address),
          .element_bytes = element_bytes,
          .rank = 3,
          .extent = {c.channels, taps, rows},
          .stride_bytes = {element_bytes, tap, taps * tap},
          .box = {128 / element_bytes, 1, box_rows},
          .swizzle_bytes = 128};
}
/// The same for weights not stored permuted, a multiple of 8 rows; boxes of 32 rows that are permuted.
inline TensorBox permuting_taps_box(const void* address, int element_bytes, const device::ConvSizes& c, int64_t rows) {
  const int64_t tap = int64_t{c.channels} * element_bytes, taps = int64_t{c.kernel_h} * c.kernel_w, row = taps * tap;
  return {.address = const_cast<void*>(address),
          .element_bytes = element_bytes,
          .rank = 5,
          .extent = {c.channels, taps, 2, rows / 8, 4},
          .stride_bytes = {element_bytes, tap, row, 8 * row, 2 * row},
          .box = {128 / element_bytes, 1, 2, 4, 4},
          .swizzle_bytes = 128};
}

}  // namespace tenon::cuda
