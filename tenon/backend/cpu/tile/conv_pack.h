// Packs a block of a convolution's input: prologue, padding, layout.
#pragma once
#include "tenon/backend/cpu/tile/conv_plan.h"

namespace tenon::cpu {

/// The output pixels of a block: rows [y0, y1), columns [x0, x1) of image n.
struct ConvBlock {
  int64_t n, y0, y1, x0, x1;
};

/// Packs the input pixels of a block into `packed` (plan.packed_bytes()).
class ConvPacker {
 public:
  ConvPacker(const TileOps& ops, const ConvPlan& plan, const PixelSource& source, const ConvBlock& block,
             std::byte* packed, float* staging, int thread)
      : ops_(ops),
        plan_(plan),
        s_(plan.s),
        source_(source),
        block_(block),
        packed_(packed),
        staging_(staging),
        thread_(thread) {}

  /// Units of work: pack() is pack_row(0 .. row_count() - 1), in any order.
  int64_t row_count() const;
  void pack_row(int64_t row) const;
  /// Floats of staging per thread.
  static int64_t staging_floats(const ConvPlan& plan);

 private:
  // Pixels [x0, x1) of an input row in memory.
  struct Pixels {
    const void* data;
    DType type;
    int64_t ld;
    const void* at(int64_t pixel) const { return static_cast<const std::byte*>(data) + pixel * ld * size_of(type); }
  };
  Pixels pixels(int64_t y, int64_t x0, int64_t x1, float* staging) const;
  std::byte* line(int64_t copy, int64_t pixel) const {
    return packed_ + (copy * plan_.channel_terms * plan_.plane + pixel) * kLine;
  }
  void zero_lines(int64_t copy, int64_t first, int64_t count) const;
  void pack_lines(const Pixels& from, int64_t ld, int64_t count, std::byte* to) const;
  void pack_run(int64_t row) const;
  void pack_shifts(int64_t row) const;
  void shift_chunk(int64_t row, int64_t x0, int64_t x1, const Pixels& from) const;
  void pack_dense(int64_t row) const;
  void gather_dense(int64_t y, int64_t x0, int64_t count, float* rows, float* input) const;
  void close_gaps(const Pixels& from, int64_t count, float* to) const;

  const TileOps& ops_;
  const ConvPlan& plan_;
  const ConvShape& s_;
  const PixelSource& source_;
  ConvBlock block_;
  std::byte* packed_;
  float* staging_;
  int thread_;
};

}  // namespace tenon::cpu
