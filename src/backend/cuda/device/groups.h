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
    // A row that is not there is row i once more: a load behind a branch would wait for the one before it.
    UNROLL for (int j = 0; j < kGroupsAtOnce; ++j) x[j] =
        Value::eval(p, row + (i + j * kLines < end ? i + j * kLines : i), col);
    UNROLL for (int j = 0; j < kGroupsAtOnce; ++j) {
      UNROLL for (int k = 0; k < Value::kRun; ++k) x[j].v[k] = i + j * kLines < end ? x[j].v[k] : 0.0f;
      sums.add(x[j]);
    }
  }
  return sums;
}

/// The last block of a range of columns adds the chunks: each thread some of them, for a few columns of one kind, which
/// meet in `shared`.
template <int kRun, class Params>
DEV void groups_finish(const Params& p, float* shared, float* sums, float* squares) {
  constexpr int kVector = kRun < 4 ? kRun : 4, kWidth = kGroupsFragments * kRun, kVectors = 2 * kWidth / kVector,
                kParts = kGroupsThreads / kVectors;
  const GroupsSizes& s = p.sizes;
  const int vector = thread_index() % kVectors, part = thread_index() / kVectors;
  const int kind = vector * kVector / kWidth, column = block_x() * kWidth + vector * kVector % kWidth;
  Frag<float, kVector> total = splat<kVector>(0.0f);
  if (column < s.channels) {
    const int64_t first = (static_cast<int64_t>(kind) * s.samples + block_z()) * s.chunks;
    NO_UNROLL for (int i = part; i < s.chunks; i += kGroupsAtOnce * kParts) {
      Frag<float, kVector> x[kGroupsAtOnce];
      UNROLL for (int j = 0; j < kGroupsAtOnce; ++j) x[j] = load<float, kVector>(
          s.partials + (first + (i + j * kParts < s.chunks ? i + j * kParts : i)) * s.channels + column);
      UNROLL for (int j = 0; j < kGroupsAtOnce; ++j) UNROLL for (int k = 0; k < kVector; ++k) total.v[k] +=
          i + j * kParts < s.chunks ? x[j].v[k] : 0.0f;
    }
  }
  store(shared + thread_index() * kVector, total);  // [kParts][2][kWidth]
  sync_block();
  for (int t = thread_index(); t < 2 * kWidth; t += kGroupsThreads) {
    float* out = t < kWidth ? sums : squares;
    const int c = block_x() * kWidth + t % kWidth;
    if (c >= s.channels || !out) continue;
    float sum = 0;
    UNROLL for (int i = 0; i < kParts; ++i) sum += shared[i * 2 * kWidth + t];
    out[static_cast<int64_t>(block_z()) * s.channels + c] = sum;
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
  groups_finish<kRun>(p, shared, sums, squares);
}

}  // namespace tenon::device
