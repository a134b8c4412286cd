// How the rows of a product are shared out: by shape and number of threads alone, in shares that differ by at most a
// block of rows.
#pragma once
#include <cstdint>

#include "tenon/backend/cpu/tile/pack.h"

namespace tenon::cpu {

/// Bands begin at multiples of the largest register block of any instruction set.
inline constexpr int64_t kRowBlock = 32;

/// The schedule of one batch entry. Bands: a thread packs some rows, multiplies them with all of B, takes the next
/// band. Together: all rows are packed first, then the threads split the columns, so B is read from memory once. Where
/// there are entries enough for every thread, each is taken by one: nobody waits for anybody between them. A single row
/// is packed by every thread for itself: nobody waits for it either, and the columns are shared out by panels.
struct GemmSchedule {
  bool together;
  bool single_row;
  int64_t m;
  int64_t bands;  ///< a multiple of the threads (together: 1; among many entries: any)
  int64_t plane;  ///< lines of one term in packed A: of the longest band, not a multiple of 32

  /// `m` > 0 rows times B of shape `b`, `batch` times.
  GemmSchedule(const PackedShape& b, int64_t m, int64_t batch, int threads);

  /// First row of band `band` in [0, bands]; m for the last bound. The longer bands come first by a block; rows that
  /// fill no block join the last band.
  int64_t first_row(int64_t band) const;
  /// Bytes of the packed rows of a band.
  int64_t packed_bytes(const PackedShape& b) const { return plane * kLine * b.terms(); }
};

}  // namespace tenon::cpu
