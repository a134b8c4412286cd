// How the rows of a product are divided among threads: by shape and number of threads alone, into shares that differ by
// at most a block of rows.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tenon/backend/cpu/tile/pack.h"

namespace tenon::cpu {

/// Bands start at multiples of the largest register block of any instruction set.
inline constexpr int64_t kRowBlock = 32;

/// The schedule of one batch entry. Bands: a thread packs some rows, multiplies them by all of B, and takes the next
/// band. Together: all rows are packed first, then threads split the columns, so that B is read from memory once. With
/// enough entries for every thread, each entry is computed by one thread, without synchronisation in between. A single
/// row is packed by every thread for itself, again without synchronisation, and the columns are divided by panels.
///
/// In parts: with a long K few rows fit the cache, and many bands would each read all of B from memory. So there are
/// few, long bands, one after another, whose columns are divided into tasks. A task multiplies a part of K at a time,
/// for which the band's rows fit, by all its columns; its sums stay in memory from part to part.
struct GemmSchedule {
  bool together;
  bool single_row;
  bool in_parts;
  int64_t m;
  int64_t bands;  ///< a multiple of the number of threads (together: 1; in parts, or with many entries: any)
  int64_t plane;  ///< lines per term of packed A: those of the longest band, not a multiple of 32
  // In parts only:
  int64_t part_terms = 0;  ///< of K
  int64_t tasks = 0;       ///< of column groups, for each band

  /// For `m` > 0 rows times B of shape `b`, `batch` times. `outruns_memory`: as in TileOps.
  GemmSchedule(const PackedShape& b, int64_t m, int64_t batch, int threads, bool outruns_memory);

  /// First row of band `band` in [0, bands]; m for the last bound. The first bands may be one block longer; rows that
  /// do not fill a block belong to the last band.
  int64_t first_row(int64_t band) const;
  int64_t longest_band() const { return std::max(first_row(1), m - first_row(bands - 1)); }
  /// Bytes of the packed rows of a band.
  int64_t packed_bytes(const PackedShape& b) const { return plane * kLine * b.terms(); }
};

}  // namespace tenon::cpu
