// Run-time sizes of the skeletons without an anchor. Filled by the host, read by kernels: plain layouts only.
#pragma once
#include "tenon/backend/cuda/device/index.h"

namespace tenon::device {

struct MapSizes {
  int32_t rows;           ///< of a part of the grid
  int32_t lines;          ///< rows of a part covered by all its threads at once
  Divisor row_fragments;  ///< fragments per row
  /// No kernel that may still run when the predecessor has started writes what the map (or its lets) loads.
  int32_t settled, settled_lets;
};

inline constexpr int kTransposedThreads = 256, kTransposedRows = 64;
/// A map in tiles of kTransposedRows rows.
struct TransposedSizes {
  int32_t rows, cols;
  Divisor column_tiles;
};

struct RowsSizes {
  int32_t rows, cols;
};
/// Floats between the places where the warps of a block leave their results of two reductions: whole 16 bytes.
inline constexpr int row_places(int threads) { return (threads / 32 + 3) / 4 * 4; }
/// Shared memory for up to `at_once` reductions over a row of a block, in bytes, twice.
inline constexpr int row_exchange_bytes(int threads, int at_once) { return 2 * at_once * row_places(threads) * 4; }

/// A value seen as [samples, inner, channels], whose moments over inner are computed.
struct GroupsSizes {
  int32_t samples, inner, channels;
  int32_t in_cluster;  ///< the blocks along inner form one cluster
  /// [2][samples, blocks along inner, channels], means and m2; only if there are several blocks that are not a cluster.
  float* partials;
  uint32_t* arrived;  ///< [samples * column blocks], zero before and after
};

inline constexpr int kGroupsThreads = 256,
                     kGroupsFragments = 8;  ///< threads along rows: kGroupsThreads / kGroupsFragments
/// Shared memory of a groups block over `width` columns, in bytes: a word, then two floats per line and column, three
/// per thread, and two per block of a cluster and column.
inline constexpr int groups_shared_bytes(int width, int cluster) {
  return 4 * (4 + 2 * (kGroupsThreads / kGroupsFragments) * width + 3 * kGroupsThreads + 2 * cluster * width);
}

}  // namespace tenon::device
