// Packs weights into the kernels' format, once, panel by panel, from any storage type.
#pragma once
#include <cstdint>

#include <optional>

#include "tenon/backend/cpu/thread_pool.h"
#include "tenon/backend/cpu/tile/tile_ops.h"

namespace tenon::cpu {

/// Shape of a packed B operand: `lanes` equal groups of `cols` columns (each padded to whole panels), K = taps * k.
struct PackedShape {
  DType type = DType::BF16;  ///< BF16, F32, or (linear layers only) I8 in blocks
  int64_t cols = 0;          ///< columns per lane
  int lanes = 1;
  int64_t k = 0;     ///< elements of K per tap
  int64_t taps = 1;  ///< kh * kw of a convolution, unless its taps form one run of K (conv_shape)
  /// For a linear layer in BF16: stored as E4M3 or I8, one byte per element, and widened when multiplied.
  std::optional<DType> bytes_of = {};
  /// For a linear layer in BF16: not packed beforehand, but a few panels at a time when multiplied (PanelsFn).
  bool on_the_fly = false;

  /// True if panels are made in a thread's buffer when they are multiplied.
  bool made_when_read() const { return bytes_of || on_the_fly; }
  int64_t terms() const { return taps * div_up(k, term_elements(type)); }
  int64_t panels() const { return div_up(cols, kPanel); }  ///< per lane
  int64_t block_bytes() const { return type == DType::I8 ? int64_t{sizeof(I8Term)} : bytes_of ? kBlock / 2 : kBlock; }
  int64_t panel_bytes() const { return terms() * block_bytes(); }
  int64_t bytes() const { return lanes * panels() * panel_bytes(); }
};

/// A packed B operand: its shape and 64-byte aligned memory of shape.bytes().
struct PackedB {
  PackedShape shape;
  const void* data = nullptr;
};

/// The packed shape of a linear layer [lanes * cols, k].
PackedShape linear_shape(DType type, int64_t cols, int64_t k, int lanes = 1);
/// A convolution's filters [o, i, kh, kw].
struct FilterShape {
  int64_t o = 0, i = 0;
  int kh = 1, kw = 1;
  int64_t taps() const { return int64_t{kh} * kw; }
  int64_t row() const { return i * taps(); }  ///< elements of a filter
};
/// The packed shape of filters. K is ordered (term of channels, tap, channel of the term),
/// so that all taps read the lines of a pixel while they are in the L1 cache; channels are padded to whole terms. With
/// i < 16 and more than one tap, K is kh * kw * i elements (ky, kx, channel) without padding between taps.
PackedShape conv_shape(DType type, const FilterShape& filters);

/// Converts the elements of a bf16 panel to E4M3 or I8 with the same values (NaN in i8: 0), and back. `n`: a multiple
/// of 32.
void narrow_to_bytes(DType t, const void* bf16, void* bytes, int64_t n);
void widen_bytes(const TileOps& ops, DType t, const void* bytes, void* bf16, int64_t n);

/// Packs row-major weights [lanes * cols, k] of type f32, f16, bf16 or e4m3 (any alignment; `ld` elements between
/// rows). Lanes follow one another in the source. Parallel over panels.
void pack_linear(ThreadPool& pool, const TileOps& ops, const void* src, DType src_type, int64_t ld,
                 const PackedShape& shape, void* dst);
/// Packs row-major [k, cols] (K-major, one lane; `ld` elements between rows of K) to linear_shape(type, cols, k); not
/// to bytes.
void pack_transposed(ThreadPool& pool, const TileOps& ops, const void* src, DType src_type, int64_t ld,
                     const PackedShape& shape, void* dst);
/// Packs row-major filters to conv_shape(type, filters).
void pack_conv(ThreadPool& pool, const TileOps& ops, const void* src, DType src_type, const FilterShape& filters,
               DType type, void* dst);

/// Fills f32 rows: the K elements of a row in the order of the packed operand's source ([k] or [i, kh, kw]).
using WeightRowsFn = FunctionRef<void(int64_t row0, int64_t rows, float* dst, int64_t ld, int thread)>;
/// The same with a callback that computes rows (folded weights, or operands computed at run time). `scratch`:
/// pack_scratch_bytes(...) bytes, 64-byte aligned.
void pack_linear(ThreadPool& pool, const TileOps& ops, WeightRowsFn rows, const PackedShape& shape, void* dst,
                 void* scratch);
void pack_conv(ThreadPool& pool, const TileOps& ops, WeightRowsFn rows, const FilterShape& filters, DType type,
               void* dst, void* scratch);
/// Scratch bytes of the callback versions. k_total: elements per source row.
int64_t pack_scratch_bytes(int64_t k_total, int threads);

}  // namespace tenon::cpu
