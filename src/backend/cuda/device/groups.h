// The groups skeleton: sums and sums of squares over the inner axis of [samples, inner, channels]. A block sums a chunk
// of rows for a range of columns; the last block of a range to arrive adds the chunks in order, so that the result is
// the same on every run.
#pragma once
#include "tenon/device/elements.h"
#include "tenon/device/sizes.h"

namespace tenon::device {

inline constexpr int kGroupsThreads = 256,
                     kGroupsFragments = 8;  // threads along rows: kGroupsThreads / kGroupsFragments
inline constexpr int kGroupsAtOnce = 4;     // rows of a thread whose loads are under way together

/// Sums and sums of squares of the columns of a fragment.
template <int kRun>
struct GroupsSums {
  Frag<float, kRun> sum = splat<kRun>(0.0f), square = splat<kRun>(0.0f);
  DEV void add(const Frag<float, kRun>& x) {
    UNROLL for (int k = 0; k < kRun; ++k) {
      sum.v[k] += x.v[k];
      square.v[k] += x.v[k] * x.v[k];
    }
  }
};

/// What a thread finds in its rows of the block's chunk.
template <class Value, class Params>
DEV GroupsSums<Value::kRun> groups_of_rows(const Params& p, int line, int col) {
  constexpr int kLines = kGroupsThreads / kGroupsFragments;
  const GroupsSizes& s = p.sizes;
  const int begin = block_y() * s.chunk, end = begin + s.chunk < s.inner ? begin + s.chunk : s.inner,
            row = block_z() * s.inner;
  GroupsSums<Value::kRun> sums;
  NO_UNROLL for (int i = begin + line; i < end; i += kGroupsAtOnce * kLines) {
    Frag<float, Value::kRun> x[kGroupsAtOnce];
    UNROLL for (int j = 0; j < kGroupsAtOnce; ++j) {
      x[j] = splat<Value::kRun>(0.0f);
      if (i + j * kLines < end) x[j] = Value::eval(p, row + i + j * kLines, col);
    }
    UNROLL for (int j = 0; j < kGroupsAtOnce; ++j) sums.add(x[j]);
  }
  return sums;
}

/// Adds the chunks of one column, `step` apart, from `first` on.
DEV float groups_of_chunks(const float* partials, int first, int step, int chunks, int channels) {
  float total = 0;
  UNROLL_8 for (int i = first; i < chunks; i += step) total += partials[static_cast<int64_t>(i) * channels];
  return total;
}

/// The last block of a range of columns: all threads add chunks, parts of them each, which meet in `shared`.
template <int kWidth, class Params>
DEV void groups_finish(const Params& p, float* shared, float* sums, float* squares) {
  constexpr int kParts = kGroupsThreads / kWidth;  // 1, 2 or more threads a column
  const GroupsSizes& s = p.sizes;
  const int64_t plane = static_cast<int64_t>(s.samples) * s.chunks * s.channels;
  const int part = thread_index() / kWidth, at = thread_index() % kWidth, c = block_x() * kWidth + at;
  UNROLL for (int kind = 0; kind < 2; ++kind) {
    float* out = kind ? squares : sums;
    const float* partials = s.partials + kind * plane + static_cast<int64_t>(block_z()) * s.chunks * s.channels + c;
    shared[kind * kGroupsThreads + thread_index()] =
        c < s.channels && out ? groups_of_chunks(partials, part, kParts, s.chunks, s.channels) : 0.0f;
  }
  sync_block();
  for (int t = thread_index(); t < 2 * kWidth; t += kGroupsThreads) {
    const int kind = t / kWidth, column = block_x() * kWidth + t % kWidth;
    float* out = kind ? squares : sums;
    if (column >= s.channels || !out) continue;
    float total = 0;
    UNROLL for (int i = 0; i < kParts; ++i) total += shared[kind * kGroupsThreads + i * kWidth + t % kWidth];
    out[static_cast<int64_t>(block_z()) * s.channels + column] = total;
  }
}

/// Value: kRun; eval(p, row, col) yields kRun columns. Sums and Squares: where results go, or 0 for none.
/// Grid: x = blocks of kGroupsFragments * kRun columns, y = chunks, z = samples.
template <class Value, class Params>
DEV void groups(const Params& p, float* sums, float* squares) {
  griddep_launch();
  griddep_wait();
  constexpr int kRun = Value::kRun, kLines = kGroupsThreads / kGroupsFragments, kWidth = kGroupsFragments * kRun;
  const GroupsSizes& s = p.sizes;
  const int fragment = thread_index() % kGroupsFragments, line = thread_index() / kGroupsFragments;
  const int col = (block_x() * kGroupsFragments + fragment) * kRun;
  GroupsSums<kRun> found;
  if (col < s.channels) found = groups_of_rows<Value>(p, line, col);
  float* shared = reinterpret_cast<float*>(shared_memory());  // [2][kLines][kWidth]
  store(shared + line * kWidth + fragment * kRun, found.sum);
  store(shared + (kLines + line) * kWidth + fragment * kRun, found.square);
  sync_block();
  const int64_t plane = static_cast<int64_t>(s.samples) * s.chunks * s.channels;
  for (int t = thread_index(); t < 2 * kWidth; t += kGroupsThreads) {
    const int kind = t / kWidth, c = block_x() * kWidth + t % kWidth;
    if (c >= s.channels) continue;
    float total = 0;
    UNROLL_8 for (int l = 0; l < kLines; ++l) total += shared[(kind * kLines + l) * kWidth + t % kWidth];
    s.partials[kind * plane + (static_cast<int64_t>(block_z()) * s.chunks + block_y()) * s.channels + c] = total;
  }
  // The last block of these columns adds the chunks.
  uint32_t* last = reinterpret_cast<uint32_t*>(shared + 2 * kLines * kWidth);
  fence_device();
  sync_block();
  if (thread_index() == 0) {
    uint32_t* arrived = s.arrived + block_z() * grid_x() + block_x();
    *last = atomic_add(arrived, 1u) + 1 == static_cast<uint32_t>(s.chunks);
    if (*last) *arrived = 0;
  }
  sync_block();
  if (!*last) return;
  fence_device();
  groups_finish<kWidth>(p, shared, sums, squares);
}

}  // namespace tenon::device
