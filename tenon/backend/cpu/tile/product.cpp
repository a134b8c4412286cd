#include "tenon/backend/cpu/tile/product.h"

#include <algorithm>

namespace tenon::cpu {
namespace {

constexpr int64_t kStagingBytes = 64 << 10;

// Terms processed with several row tiles before the next ones: equal parts that fit the instruction set's chunk.
int64_t chunk_terms(const TileOps& ops, const PackedShape& shape) {
  const int64_t term_bytes = kGroupPanels * shape.lanes * (shape.made_when_read() ? kBlock : shape.block_bytes());
  const int64_t fit =
      shape.made_when_read() ? kMadeBytes / term_bytes : std::max<int64_t>(8, ops.chunk_bytes / term_bytes);
  return div_up(shape.terms(), div_up(shape.terms(), fit));
}

}  // namespace

int last_words(int64_t k, DType type) {
  const int64_t per_term = term_elements(type), rest = k % per_term;
  return rest == 0 ? 16 : static_cast<int>(div_up(rest * 16, per_term));
}

int64_t sum_floats(const PackedShape& shape) { return kTilesAtOnce * shape.lanes * kTileFloats + made_floats(shape); }

int64_t row_parts(int64_t groups, int64_t tiles, int threads) {
  const int64_t wanted = div_up(int64_t{8} * threads, groups);
  return threads == 1 ? 1 : std::clamp<int64_t>(wanted, 1, tiles);
}

void Product::run_panels(int64_t panel0, int64_t count, int64_t tile0, int64_t tile1, float* sums, int thread) const {
  const int64_t terms = shape.terms();
  const bool in_passing = shape.bytes_of == DType::I8 && tile1 - tile0 == 1 && tile(tile0).rows <= ops.rows_in_passing;
  const bool makes = shape.made_when_read() && !in_passing;
  const int64_t chunk = in_passing || streams ? terms : chunk_terms(ops, shape);
  // If K is one chunk, several tiles at once only make panels less often, and exceed the L1 cache.
  const int64_t at_once = chunk == terms && !makes ? 1 : kTilesAtOnce;
  auto* made = reinterpret_cast<std::byte*>(sums + kTilesAtOnce * shape.lanes * kTileFloats);
  for (int64_t first = tile0; first < tile1; first += at_once) {
    const Block block{panel0, static_cast<int>(count), first, std::min(tile1, first + at_once)};
    add(block, 0, terms, chunk, sums, makes ? made : nullptr);
    finish(block, sums, thread);
  }
}

void Product::run_part(int64_t group, int64_t tiles, int64_t term, int64_t term_end, float* sums, std::byte* made,
                       int thread) const {
  const int64_t panel0 = group * kGroupPanels;
  const Block block{panel0, static_cast<int>(std::min<int64_t>(kGroupPanels, shape.panels() - panel0)), 0, tiles};
  add(block, term, term_end, chunk_terms(ops, shape), sums, shape.made_when_read() ? made : nullptr);
  if (term_end == shape.terms()) finish(block, sums, thread);
}

void Product::add(const Block& block, int64_t term, int64_t term_end, int64_t chunk, float* sums,
                  std::byte* made) const {
  for (; term < term_end; term += chunk) {
    const int64_t end = std::min(term_end, term + chunk);
    if (made) make(block, term, end, made);
    multiply(block, term, end, sums, made);
  }
}

void Product::finish(const Block& block, float* sums, int thread) const {
  const int64_t col0 = block.panel0 * kPanel;
  const int cols = static_cast<int>(std::min<int64_t>(block.panels * kPanel, shape.cols - col0));
  for (int64_t i = block.tile0; i < block.tile1; ++i) {
    const RowTile rows = tile(i);
    OutTile done{rows.row0, col0, rows.rows, cols, {}, kMaxTileCols, thread};
    for (int lane = 0; lane < shape.lanes; ++lane) done.acc[lane] = sums_of(sums, i - block.tile0, lane);
    out(done);
  }
}

void Product::make(const Block& block, int64_t term, int64_t term_end, std::byte* made) const {
  if (shape.on_the_fly) {
    for (int lane = 0; lane < shape.lanes; ++lane, made += block.panels * (term_end - term) * kBlock)
      panels({lane, block.panel0, block.panels, term, term_end}, made);
    return;
  }
  const int64_t elements = (term_end - term) * shape.block_bytes();
  for (int lane = 0; lane < shape.lanes; ++lane)
    for (int panel = 0; panel < block.panels; ++panel, made += 2 * elements) {
      const int64_t at =
          (lane * shape.panels() + block.panel0 + panel) * shape.panel_bytes() + term * shape.block_bytes();
      widen_bytes(ops, *shape.bytes_of, static_cast<const std::byte*>(b) + at, made, elements);
    }
}

void Product::multiply(const Block& block, int64_t term, int64_t term_end, float* sums, const std::byte* made) const {
  TileArgs args{};
  args.a_off = a_off + term;
  args.a_stride = a_stride;
  args.b_stride = made ? (term_end - term) * kBlock : shape.panel_bytes();
  args.ldc = kMaxTileCols;
  args.terms = term_end - term;
  args.panels = block.panels;
  args.accumulate = term > 0;
  args.streams = streams;
  args.last = term_end == shape.terms() ? last_words(shape.k, shape.type) : 16;
  for (int lane = 0; lane < shape.lanes; ++lane) {
    const int64_t at = lane * shape.panels() + block.panel0;
    args.b = made ? made + lane * block.panels * args.b_stride
                  : static_cast<const std::byte*>(b) + at * args.b_stride + term * shape.block_bytes();
    for (int64_t i = block.tile0; i < block.tile1; ++i) {
      const RowTile rows = tile(i);
      args.a = static_cast<const std::byte*>(a) + rows.a_offset;
      args.m = rows.rows;
      args.c = sums_of(sums, i - block.tile0, lane);
      shape.bytes_of && !made ? ops.gemm_bf16_i8(args) : ops.gemm(shape.type, args);
    }
  }
}

int64_t staging_rows(int64_t k, int64_t rows_at_once) {
  const int64_t row_bytes = round_up(std::max<int64_t>(k, 1), 16) * int64_t{sizeof(float)};
  return round_up(std::clamp<int64_t>(kStagingBytes / row_bytes, 1, kMaxTileRows), rows_at_once);
}

int64_t staging_floats(int64_t k, int64_t rows_at_once) { return staging_rows(k, rows_at_once) * round_up(k, 16); }

void pack_source_rows(const TileOps& ops, const RowSource& source, int64_t row0, PackRowsArgs args, float* staging,
                      int thread) {
  if (source.data) {
    args.src = static_cast<const std::byte*>(source.data) + row0 * source.ld * size_of(source.type);
    args.src_type = source.type;
    args.ld = source.ld;
    ops.pack_rows(args);
    return;
  }
  const int64_t at_once = staging_rows(args.k, source.rows_at_once), end = row0 + args.rows;
  args.src = staging;
  args.src_type = DType::F32;
  args.ld = round_up(args.k, 16);
  for (; row0 < end; row0 += at_once) {
    args.rows = std::min(at_once, end - row0);
    source.rows(row0, args.rows, staging, args.ld, thread);
    ops.pack_rows(args);
    args.dst = static_cast<std::byte*>(args.dst) + at_once * args.row_stride;
  }
}

}  // namespace tenon::cpu
