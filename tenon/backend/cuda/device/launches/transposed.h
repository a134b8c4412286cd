// A map whose operands are column-major (contiguous from one row to the next) and whose result is row-major, like a
// matrix transpose. Tiles pass through shared memory: adjacent lanes load vertically adjacent elements, in full cache
// lines, and store horizontally adjacent ones, in lines of 128 bytes.
#pragma once
#include "tenon/backend/cuda/device/elements.h"
#include "tenon/backend/cuda/device/launches/sizes.h"

namespace tenon::device {

/// Load: eval(p, row, col) gives one element. Store: kWidth columns of type T, at most 4 bytes, by compute and store
/// like an epilogue. One block per tile of kTransposedRows rows and 128 bytes of columns.
template <class Load, class Store, class T, class Params>
DEV void map_transposed(const Params& p) {
  constexpr int kColumns = 128 / static_cast<int>(sizeof(T)), kEach = kTransposedRows * kColumns / kTransposedThreads;
  // 33 words per row: no bank conflicts along columns or along rows.
  constexpr int kRowElements = kColumns + 4 / static_cast<int>(sizeof(T)), kWidth = Store::kWidth;
  const TransposedSizes& s = p.sizes;
  const int block = block_x() / s.column_tiles, first_row = block * kTransposedRows,
            first_col = (block_x() - block * static_cast<int>(s.column_tiles.divisor)) * kColumns;
  T* const tile = reinterpret_cast<T*>(shared_memory());
  griddep_wait();
  griddep_launch();
  Frag<float, 1> loaded[kEach];  // all in flight at once
  UNROLL for (int i = 0; i < kEach; ++i) {
    const int item = i * kTransposedThreads + thread_index();
    const int row = first_row + item % kTransposedRows, col = first_col + item / kTransposedRows;
    loaded[i] = Load::eval(p, row < s.rows ? row : s.rows - 1, col < s.cols ? col : s.cols - 1);
  }
  UNROLL for (int i = 0; i < kEach; ++i) {
    const int item = i * kTransposedThreads + thread_index();
    tile[item % kTransposedRows * kRowElements + item / kTransposedRows] = from_floats<T>(loaded[i]).v[0];
  }
  sync_block();
  UNROLL for (int i = 0; i < kEach / kWidth; ++i) {
    const int item = i * kTransposedThreads + thread_index();
    const int inside = item / (kColumns / kWidth), at = item % (kColumns / kWidth) * kWidth;
    const int row = first_row + inside, col = first_col + at;
    if (row >= s.rows || col >= s.cols) continue;
    const Frag<float, kWidth> acc[1] = {to_floats(load<T, kWidth>(tile + inside * kRowElements + at))};
    Store::store(p, row, col, Store::compute(p, row, col, acc));
  }
}

}  // namespace tenon::device
