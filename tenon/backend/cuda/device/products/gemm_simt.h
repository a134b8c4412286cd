// The product of few rows in f32 on the CUDA cores: takes about as long as reading operand B. Every warp of a block has
// a range of K (GemmSizes::range); sums of ranges are added in shared memory in their order, as plain_loop adds them
// (mma_tile.h): a row's result is the same alone and among any number of others.
//
//   a warp: K tiles of 16 of both operands --cp.async, kStages deep--> its ring in shared memory --> sums in
//   registers --> shared memory --> the epilogue
//
// A lane has one column (of every lane of the epilogue) and kLaneRows rows. Constants are requested before the
// preceding kernel has ended.
//
// grid.x = columns of a lane / kColumns, grid.y = rows / kRows; SimtTile::kThreads, kSharedBytes.
#pragma once
#include "tenon/backend/cuda/device/products/mma_tile.h"

namespace tenon::device {

/// kRows_ rows, kColumns_ (8, 16 or 32) columns of each of kLanes_ lanes, kWarps_ warps that split K.
template <int kRows_, int kColumns_, int kLanes_, int kWarps_, int kStages_>
struct SimtTile {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kLanes = kLanes_, kWarps = kWarps_, kStages = kStages_;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kGroups = 32 / kColumns, kLaneRows = kRows / kGroups;
  static constexpr int kTileK = 16, kRowBytes = kTileK * 4;  ///< of K
  static constexpr int kStageBytes = (kRows + kLanes * kColumns) * kRowBytes, kWarpBytes = kStages * kStageBytes;
  static constexpr int kSums = kLanes * kRows * kColumns;  ///< of a warp
  static constexpr int kSharedBytes = kWarps * (kWarpBytes > kSums * 4 ? kWarpBytes : kSums * 4);
  static_assert(kRows % kGroups == 0 && kStages >= 2);

  /// The XOR mask for a row's chunk numbers, as in MmaTile.
  DEV static int swizzle(int row) { return (row >> 1) & 3; }
};

/// Copies a warp's K tiles of some rows of an operand: lane l copies chunk l % 4 of rows l / 4, l / 4 + 8, ...
template <class Tile, int kRows, class Operand>
struct KTileLoader {
  static constexpr int kPasses = (kRows + 7) / 8;
  typename Operand::Row rows[kPasses];
  int column, end;

  /// Columns [first, last) of K; row_of(i) is the operand's row for row i of the tile.
  template <class Params, class RowOf>
  DEV KTileLoader(const Params& p, int first, int last, RowOf row_of) : column(first + lane() % 4 * 4), end(last) {
    UNROLL for (int i = 0; i < kPasses; ++i) {
      const int row = lane() / 4 + 8 * i;
      rows[i] = Operand::row(p, row_of(row < kRows ? row : kRows - 1));
    }
  }
  DEV void copy(uint32_t shared) {
    const bool present = column < end;
    UNROLL for (int i = 0; i < kPasses; ++i) {
      const int row = lane() / 4 + 8 * i;
      if (kRows % 8 && row >= kRows) continue;
      cp_async16(shared + row * Tile::kRowBytes + (lane() % 4 ^ Tile::swizzle(row)) * 16,
                 Operand::at(rows[i], present ? column : 0), present ? 16 : 0);
    }
    column += Tile::kTileK;
  }
};

template <class Tile>
struct SimtSums {
  float v[Tile::kLanes][Tile::kLaneRows];
};

/// Multiplies a K tile; row r of a lane is row r * kGroups + lane / kColumns of the tile.
template <class Tile>
DEV void multiply_k_tile(SimtSums<Tile>& sums, const unsigned char* k_tile) {
  const int column = lane() % Tile::kColumns, group = lane() / Tile::kColumns;
  const auto chunk_of = [](const unsigned char* rows, int row, int chunk) {
    return load<float, 4>(reinterpret_cast<const float*>(rows + row * Tile::kRowBytes) +
                          (chunk ^ Tile::swizzle(row)) * 4);
  };
  const unsigned char* const rows_of_b = k_tile + Tile::kRows * Tile::kRowBytes;
  UNROLL for (int chunk = 0; chunk < Tile::kTileK / 4; ++chunk) {
    Frag<float, 4> right[Tile::kLanes];
    UNROLL for (int l = 0; l < Tile::kLanes; ++l) right[l] = chunk_of(rows_of_b, l * Tile::kColumns + column, chunk);
    UNROLL for (int r = 0; r < Tile::kLaneRows; ++r) {
      const Frag<float, 4> left = chunk_of(k_tile, r * Tile::kGroups + group, chunk);
      UNROLL for (int l = 0; l < Tile::kLanes; ++l) {
        UNROLL for (int k = 0; k < 4; ++k) sums.v[l][r] += left.v[k] * right[l].v[k];
      }
    }
  }
}

/// The sums of a warp's range of K, of the tile's rows from `row` on and columns from `column` on.
template <class Tile, class A, class B, class Params>
DEV void sum_range_of_warp(const Params& p, SimtSums<Tile>& sums, int row, int column) {
  const GemmSizes& g = p.sizes;
  const int columns = g.n / Tile::kLanes, first = warp() * g.range;
  const int last = first + g.range < g.k ? first + g.range : g.k,
            k_tiles = (last - first + Tile::kTileK - 1) / Tile::kTileK;
  const int ring = warp() * Tile::kWarpBytes;
  const uint32_t shared = shared_address(shared_memory()) + ring;
  KTileLoader<Tile, Tile::kLanes * Tile::kColumns, B> b(p, first, last, [&](int i) {
    const int at = column + i % Tile::kColumns;
    return i / Tile::kColumns * columns + (at < columns ? at : columns - 1);
  });
  const auto copy_b = [&](int stage) { b.copy(shared + stage * Tile::kStageBytes + Tile::kRows * Tile::kRowBytes); };
  if constexpr (!B::kConstant) griddep_wait();
  UNROLL for (int s = 0; s < Tile::kStages - 1; ++s) if (s < k_tiles) copy_b(s);
  if constexpr (B::kConstant) griddep_wait();
  griddep_launch();
  KTileLoader<Tile, Tile::kRows, A> a(p, first, last, [&](int i) { return row + i < g.m ? row + i : g.m - 1; });
  UNROLL for (int s = 0; s < Tile::kStages - 1; ++s) {
    if (s < k_tiles) a.copy(shared + s * Tile::kStageBytes);
    cp_async_commit();
  }
  int read = 0, write = Tile::kStages - 1;
  NO_UNROLL for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    cp_async_wait<Tile::kStages - 2>();
    sync_warp();  // the K tile is complete, and all lanes have read the previous one
    if (k_tile + Tile::kStages - 1 < k_tiles) {
      copy_b(write);
      a.copy(shared + write * Tile::kStageBytes);
    }
    cp_async_commit();
    multiply_k_tile<Tile>(sums, shared_memory() + ring + read * Tile::kStageBytes);
    read = read + 1 == Tile::kStages ? 0 : read + 1;
    write = write + 1 == Tile::kStages ? 0 : write + 1;
  }
  cp_async_wait<0>();
}

template <class Tile, class A, class B, class Epilogue, class Params>
DEV void gemm_simt(const Params& p) {
  static_assert(!B::kPermuted && Epilogue::kLanes == Tile::kLanes);
  constexpr int kWidth = Epilogue::kWidth, kVectors = Tile::kColumns / kWidth;
  const GemmSizes& g = p.sizes;
  const int row = block_y() * Tile::kRows, column = block_x() * Tile::kColumns, columns = g.n / Tile::kLanes;
  SimtSums<Tile> sums = {};
  sum_range_of_warp<Tile, A, B>(p, sums, row, column);
  sync_block();  // rings become sums [warp][lane of the epilogue][row][column]
  float* const all = reinterpret_cast<float*>(shared_memory());
  UNROLL for (int l = 0; l < Tile::kLanes; ++l) UNROLL for (int r = 0; r < Tile::kLaneRows; ++r) {
    const int at = (l * Tile::kRows + r * Tile::kGroups + lane() / Tile::kColumns) * Tile::kColumns;
    all[warp() * Tile::kSums + at + lane() % Tile::kColumns] = sums.v[l][r];
  }
  sync_block();
  NO_UNROLL for (int item = thread_index(); item < Tile::kRows * kVectors; item += Tile::kThreads) {
    const int i = item / kVectors, at = item % kVectors * kWidth;
    if (row + i >= g.m || column + at >= columns) continue;
    Frag<float, kWidth> acc[Tile::kLanes] = {};
    UNROLL for (int w = 0; w < Tile::kWarps; ++w) UNROLL for (int l = 0; l < Tile::kLanes; ++l) {
      const auto part = load<float, kWidth>(all + w * Tile::kSums + (l * Tile::kRows + i) * Tile::kColumns + at);
      UNROLL for (int k = 0; k < kWidth; ++k) acc[l].v[k] += part.v[k];
    }
    Epilogue::store(p, row + i, column + at, Epilogue::compute(p, row + i, column + at, acc));
  }
}

}  // namespace tenon::device
