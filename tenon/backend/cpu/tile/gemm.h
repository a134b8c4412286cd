// Matrix product with holes: a prologue supplies rows of A, an epilogue consumes tiles of the result, and everything in
// between stays in caches. Knows nothing of expressions.
#pragma once
#include <cstdint>

#include "tenon/backend/cpu/tile/pack.h"

namespace tenon::cpu {

inline constexpr int kMaxLanes = 4;
inline constexpr int kMaxTileRows = 64;  ///< most rows of an epilogue tile
inline constexpr int kMaxTileCols = 64;  ///< most columns of a lane of an epilogue tile

/// Prologue: writes f32 rows [row0, row0 + rows) of A, all of K, to dst (`ld` elements between rows; dst is 64-byte
/// aligned and ld a multiple of 16). Called on any thread of the pool; `thread` says which. Each row is requested once,
/// but the row of a product with only one by every thread.
using RowsFn = FunctionRef<void(int64_t row0, int64_t rows, float* dst, int64_t ld, int thread)>;

/// A tile of the result: rows [row0, row0 + rows), columns [col0, col0 + cols) of each lane. acc[lane] points to f32
/// sums with `ld` elements between rows (64-byte aligned, ld a multiple of 16); the callee may overwrite up to
/// round_up(cols, 16) of a row. col0 is a multiple of kPanel.
struct OutTile {
  int64_t row0, col0;
  int rows, cols;
  float* acc[kMaxLanes];
  int64_t ld;
  int thread;
};
/// Epilogue: consumes one tile. Every element of the result is passed exactly once, in no fixed order.
using TileFn = FunctionRef<void(const OutTile& tile)>;

/// Rows of an operand: memory (f32, bf16 or f16, row-major, `ld` elements between rows) or, if data == nullptr, a
/// callback.
struct RowSource {
  const void* data = nullptr;
  DType type = DType::F32;
  int64_t ld = 0;
  RowsFn rows;
  int64_t rows_at_once = 1;  ///< of a callback: preferred number of rows per call
};

/// Some panels of B: terms [term, term_end) of `panels` panels of a lane, from panel0 on. A panel's terms are
/// contiguous at the destination, panels follow one another.
struct PanelRange {
  int lane;
  int64_t panel0, panels, term, term_end;
};
/// Packs panels to 64-byte aligned memory. Called on any thread of the pool, maybe several times for the same panels.
using PanelsFn = FunctionRef<void(const PanelRange& range, std::byte* dst)>;

struct GemmArgs {
  int64_t m = 0;    ///< rows of one batch entry; A's and C's rows are numbered batch * m + i
  RowSource a;      ///< batch * m rows of b.shape.k elements
  PackedB b;        ///< its type is the arithmetic: BF16, F32 or I8; without data if it is packed on the fly,
  PanelsFn panels;  ///< which only one batch entry can be
  int64_t batch = 1;
  int64_t b_batch_stride = 0;  ///< bytes between the B operands of batch entries (0: shared)
  TileFn out;
};

/// Exact scratch bytes that gemm() needs for these sizes; `rows_at_once` as a's.
int64_t gemm_scratch_bytes(const TileOps& ops, const PackedShape& b, int64_t m, int64_t batch, int threads,
                           int64_t rows_at_once = 1);
/// C = A * B. `scratch`: gemm_scratch_bytes(...) bytes, 64-byte aligned, any contents. The bits do not depend on the
/// number of threads.
void gemm(ThreadPool& pool, const TileOps& ops, const GemmArgs& args, void* scratch);

}  // namespace tenon::cpu
