#include "tenon/backend/cpu/tile/pack.h"

#include <cstring>
#include <memory>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/core/i8_blocks.h"

namespace tenon::cpu {
namespace {

// 16 rows of a weight matrix, from any source.
struct WeightRows {
  const void* data;
  DType type;
  int64_t ld;

  const char* at(int64_t element) const { return static_cast<const char*>(data) + element * size_of(type); }
};

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<std::byte, AlignedDelete>;
AlignedBytes aligned_bytes(int64_t n) {
  return AlignedBytes(static_cast<std::byte*>(::operator new (static_cast<size_t>(n), std::align_val_t{64})));
}

int panel_cols(int64_t cols, int64_t panel) {
  return static_cast<int>(std::min<int64_t>(kPanel, cols - panel * kPanel));
}

// One line (16 columns) of bf16 pairs: low halves from half kLow of x, high halves from half kHigh of y.
template <int kLow, int kHigh>
void combine(const uint32_t* x, const uint32_t* y, uint32_t* out) {
  for (int c = 0; c < kPanel; ++c) {
    const uint32_t low = kLow ? x[c] >> 16 : x[c] & 0xffffu;
    const uint32_t high = kHigh ? y[c] & 0xffff0000u : y[c] << 16;
    out[c] = low | high;
  }
}

// From lines of bf16 pairs in source order (channel, tap), gathers the pairs of channels (2 s, 2 s + 1) of one tap.
void regroup_bf16(const uint32_t* src, int64_t channels, int64_t taps, int64_t tap, uint32_t* out) {
  static constexpr uint32_t kZeros[kPanel] = {};
  for (int64_t s = 0; s < 16; ++s, out += kPanel) {
    const int64_t k0 = 2 * s * taps + tap, k1 = k0 + taps;
    if (2 * s >= channels) {
      std::memset(out, 0, kLine);
      continue;
    }
    const uint32_t* x = src + k0 / 2 * kPanel;
    const bool paired = 2 * s + 1 < channels;
    const uint32_t* y = paired ? src + k1 / 2 * kPanel : kZeros;
    const int low = k0 & 1, high = paired ? k1 & 1 : 0;
    if (low == 0 && high == 0) combine<0, 0>(x, y, out);
    if (low == 0 && high == 1) combine<0, 1>(x, y, out);
    if (low == 1 && high == 0) combine<1, 0>(x, y, out);
    if (low == 1 && high == 1) combine<1, 1>(x, y, out);
  }
}

void regroup_f32(const uint32_t* src, int64_t channels, int64_t taps, int64_t tap, uint32_t* out) {
  for (int64_t s = 0; s < 16; ++s, out += kPanel) {
    if (s < channels)
      std::memcpy(out, src + (s * taps + tap) * kPanel, kLine);
    else
      std::memset(out, 0, kLine);
  }
}

// One panel of a convolution: packs a term's channels in source order, then regroups them by tap.
void pack_conv_panel(const TileOps& ops, const WeightRows& rows, int cols, int64_t channels, int64_t taps, DType type,
                     char* dst) {
  const int64_t per_term = term_elements(type), blocks = div_up(channels, per_term);
  if (taps == 1) {
    ops.pack_panel({rows.data, rows.type, rows.ld, channels, cols, dst, type});
    return;
  }
  const AlignedBytes lines = aligned_bytes(taps * kBlock);
  const auto* words = reinterpret_cast<const uint32_t*>(lines.get());
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * per_term, count = std::min(per_term, channels - first);
    ops.pack_panel({rows.at(first * taps), rows.type, rows.ld, count * taps, cols, lines.get(), type});
    for (int64_t tap = 0; tap < taps; ++tap) {
      auto* out = reinterpret_cast<uint32_t*>(dst + (block * taps + tap) * kBlock);
      type == DType::BF16 ? regroup_bf16(words, count, taps, tap, out) : regroup_f32(words, count, taps, tap, out);
    }
  }
}

// One panel of a convolution with few channels: K is (tap, channel) without padding.
void pack_dense_panel(const TileOps& ops, const WeightRows& rows, int cols, int64_t channels, int64_t taps, DType type,
                      char* dst) {
  const int64_t k = channels * taps;
  std::vector<float> source(static_cast<size_t>(k)), ordered(static_cast<size_t>(kPanel * k));
  for (int c = 0; c < cols; ++c) {
    ops.widen(rows.at(c * rows.ld), rows.type, source.data(), k);
    for (int64_t i = 0; i < channels; ++i)
      for (int64_t tap = 0; tap < taps; ++tap) ordered[c * k + tap * channels + i] = source[i * taps + tap];
  }
  ops.pack_panel({ordered.data(), DType::F32, k, k, cols, dst, type});
}

// Calls panel(rows, cols, dst) for every panel of every lane; rows_of(lane row) returns the source.
template <class RowsOf, class Pack>
void for_panels(ThreadPool& pool, const PackedShape& shape, void* dst, const RowsOf& rows_of, const Pack& pack) {
  const int64_t panels = shape.panels();
  pool.parallel_for(shape.lanes * panels, [&](int64_t task, int thread) {
    const int64_t lane = task / panels, panel = task % panels;
    const int cols = panel_cols(shape.cols, panel);
    const WeightRows rows = rows_of(lane * shape.cols + panel * kPanel, cols, thread);
    pack(rows, cols, static_cast<char*>(dst) + task * shape.panel_bytes());
  });
}

// Rows from a callback, computed into the calling thread's part of the scratch.
struct CallbackRows {
  WeightRowsFn fill;
  int64_t k;
  void* scratch;

  WeightRows operator()(int64_t row0, int cols, int thread) const {
    const int64_t ld = round_up(k, 16);
    float* rows = static_cast<float*>(scratch) + thread * kPanel * ld;
    fill(row0, cols, rows, ld, thread);
    return {rows, DType::F32, ld};
  }
};

struct MemoryRows {
  const void* data;
  DType type;
  int64_t ld;

  WeightRows operator()(int64_t row0, int, int) const {
    return {static_cast<const char*>(data) + row0 * ld * size_of(type), type, ld};
  }
};

void check_types(DType src, DType dst) {
  TENON_CHECK(Internal, src == DType::F32 || src == DType::F16 || src == DType::BF16 || src == DType::E4M3, "pack")
      << "weights of type " << name_of(src) << " cannot be packed";
  TENON_CHECK(Internal, dst == DType::F32 || dst == DType::BF16 || dst == DType::I8, "pack")
      << "cannot pack to " << name_of(dst);
}

// One panel of i8 in blocks, term by term and column by column.
void pack_i8_panel(const TileOps& ops, const WeightRows& rows, int cols, int64_t k, char* panel) {
  auto* terms = reinterpret_cast<I8Term*>(panel);
  std::memset(terms, 0, static_cast<size_t>(div_up(k, kI8Block)) * sizeof(I8Term));
  std::vector<float> row(static_cast<size_t>(k));
  int8_t q[kI8Block];
  for (int c = 0; c < cols; ++c) {
    ops.widen(rows.at(c * rows.ld), rows.type, row.data(), k);
    for (int64_t at = 0; at < k; at += kI8Block) {
      const int64_t n = std::min(kI8Block, k - at);
      I8Term& term = terms[at / kI8Block];
      term.scale[c] = f16_bits(round_i8_block(row.data() + at, n, BlockScale::F16, q));
      for (int64_t i = 0; i < n; ++i) term.q[i / 4][c][i % 4] = static_cast<uint8_t>(q[i] + 128);
    }
  }
}

template <class RowsOf>
void pack_linear_from(ThreadPool& pool, const TileOps& ops, const PackedShape& shape, void* dst,
                      const RowsOf& rows_of) {
  for_panels(pool, shape, dst, rows_of, [&](const WeightRows& rows, int cols, char* panel) {
    if (shape.type == DType::I8) return pack_i8_panel(ops, rows, cols, shape.k, panel);
    const AlignedBytes wide = shape.bytes_of ? aligned_bytes(shape.terms() * kBlock) : nullptr;
    void* to = wide ? static_cast<void*>(wide.get()) : panel;
    ops.pack_panel({rows.data, rows.type, rows.ld, shape.k, cols, to, shape.type});
    if (wide) narrow_to_bytes(*shape.bytes_of, wide.get(), panel, shape.panel_bytes());
  });
}

template <class RowsOf>
void pack_conv_from(ThreadPool& pool, const TileOps& ops, const FilterShape& filters, DType type, void* dst,
                    const RowsOf& rows_of) {
  const PackedShape shape = conv_shape(type, filters);
  const int64_t taps = filters.taps();
  for_panels(pool, shape, dst, rows_of, [&](const WeightRows& rows, int cols, char* panel) {
    shape.taps == taps ? pack_conv_panel(ops, rows, cols, filters.i, taps, type, panel)
                       : pack_dense_panel(ops, rows, cols, filters.i, taps, type, panel);
  });
}

}  // namespace

PackedShape linear_shape(DType type, int64_t cols, int64_t k, int lanes) { return {type, cols, lanes, k, 1}; }

PackedShape conv_shape(DType type, const FilterShape& filters) {
  if (filters.i < 16 && filters.taps() > 1) return {type, filters.o, 1, filters.row(), 1};
  return {type, filters.o, 1, filters.i, filters.taps()};
}

void narrow_to_bytes(DType t, const void* bf16, void* bytes, int64_t n) {
  const auto* from = static_cast<const uint16_t*>(bf16);
  auto* to = static_cast<uint8_t*>(bytes);
  for (int64_t i = 0; i < n; ++i) {
    const float x = bf16_value(from[i]);
    if (t == DType::E4M3)
      to[i] = e4m3_bits(x);
    else  // in each line of 16 pairs, all first elements, then all second ones
      to[i / 32 * 32 + i % 2 * 16 + i % 32 / 2] = x == x ? static_cast<uint8_t>(static_cast<int8_t>(x)) : 0;
  }
}

void widen_bytes(const TileOps& ops, DType t, const void* bytes, void* bf16, int64_t n) {
  t == DType::I8 ? ops.widen_i8(bytes, bf16, n) : ops.widen_e4m3(bytes, bf16, n);
}

void pack_linear(ThreadPool& pool, const TileOps& ops, const void* src, DType src_type, int64_t ld,
                 const PackedShape& shape, void* dst) {
  check_types(src_type, shape.type);
  pack_linear_from(pool, ops, shape, dst, MemoryRows{src, src_type, ld});
}

void pack_linear(ThreadPool& pool, const TileOps& ops, WeightRowsFn rows, const PackedShape& shape, void* dst,
                 void* scratch) {
  check_types(DType::F32, shape.type);
  pack_linear_from(pool, ops, shape, dst, CallbackRows{rows, shape.k, scratch});
}

void pack_transposed(ThreadPool& pool, const TileOps& ops, const void* src, DType src_type, int64_t ld,
                     const PackedShape& shape, void* dst) {
  check_types(src_type, shape.type);
  TENON_CHECK(Internal, shape.lanes == 1 && shape.taps == 1 && !shape.bytes_of && shape.type != DType::I8, "pack")
      << "expected one lane and one tap, not kept as bytes";
  const int64_t per_term = term_elements(shape.type), terms = shape.terms(), per_task = 8;
  pool.parallel_for(div_up(terms, per_task), [&](int64_t task, int) {
    const int64_t k0 = task * per_task * per_term, rows = std::min(per_task * per_term, shape.k - k0);
    ops.pack_columns({static_cast<const char*>(src) + k0 * ld * size_of(src_type), src_type, ld, rows, shape.cols,
                      static_cast<char*>(dst) + task * per_task * kBlock, shape.type, shape.panel_bytes()});
  });
}

void pack_conv(ThreadPool& pool, const TileOps& ops, const void* src, DType src_type, const FilterShape& filters,
               DType type, void* dst) {
  check_types(src_type, type);
  pack_conv_from(pool, ops, filters, type, dst, MemoryRows{src, src_type, filters.row()});
}

void pack_conv(ThreadPool& pool, const TileOps& ops, WeightRowsFn rows, const FilterShape& filters, DType type,
               void* dst, void* scratch) {
  check_types(DType::F32, type);
  pack_conv_from(pool, ops, filters, type, dst, CallbackRows{rows, filters.row(), scratch});
}

int64_t pack_scratch_bytes(int64_t k_total, int threads) {
  return threads * kPanel * round_up(k_total, 16) * int64_t{sizeof(float)};
}

}  // namespace tenon::cpu
