// How a convolution's input is split into blocks and laid out in packed lines.
//
// Rows    one copy of the pixels, with padding: [terms of C][in_rows][in_cols] lines. A tile is a run of pixels in an
//         image row; tap (ky, kx) is an offset of ky * in_cols + kx lines.
// Shifts  for narrow images, whose rows are too short for a tile: one shifted copy per kx, as wide as the output, so
//         that pixels continue from row to row: [kx][terms][in_rows][out_w]; with stride > 1, one copy per tap.
// Dense   for few channels: one line holds several taps (im2col): [terms of kh * kw * C][rows][out_w].
#pragma once
#include <cstdint>

#include "tenon/backend/cpu/tile/conv.h"

namespace tenon::cpu {

enum class ConvLayout : uint8_t { Rows, Shifts, Dense };

struct ConvPlan {
  ConvShape s;
  DType type;
  ConvLayout layout;
  PackedShape w;
  bool together;  ///< pack all images first, then split columns (else a thread packs and multiplies block by block)
  int64_t rows, cols;  ///< output pixels of a block: image rows x columns (cols < out_w only for Rows)
  int64_t row_blocks, col_blocks;
  int64_t channel_terms;  ///< terms of one tap
  int64_t pitch;          ///< lines from one packed row to the next
  int64_t plane;          ///< lines of one term of one copy

  ConvPlan(const ConvShape& shape, DType t, int threads);

  int64_t copies() const;
  /// Lines of a packed block, including those that a kernel may read beyond its last row.
  int64_t block_lines() const {
    return copies() * (layout == ConvLayout::Dense ? w.terms() : channel_terms) * plane + 32;
  }
  int64_t packed_bytes() const { return block_lines() * kLine; }
  int64_t blocks() const { return s.n * row_blocks * col_blocks; }
  /// Bytes between the lines of consecutive output pixels.
  int64_t a_stride() const { return layout == ConvLayout::Rows ? s.stride * kLine : kLine; }
  /// Fills the byte offset of each of the w.terms() terms.
  void fill_offsets(int64_t* a_off) const;
};

}  // namespace tenon::cpu
