// The groups skeleton: sums and sums of squares over the inner axis of [samples, inner, channels]. A block sums some of
// the rows (a chunk) for a range of columns. A cluster that holds all blocks of a range adds theirs in shared memory;
// else the last block of a range to arrive adds the chunks. Both in order: the result is the same on every run.
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

/// What a thread finds in its rows. All blocks walk from the first row to the last together, a line of threads a row.
template <class Value, class Params>
DEV GroupsSums<Value::kRun> groups_of_rows(const Params& p, int line, int col) {
  constexpr int kLines = kGroupsThreads / kGroupsFragments;
  const int inner = p.sizes.inner, row = block_z() * inner, apart = grid_x() * kLines;
  GroupsSums<Value::kRun> sums;
  NO_UNROLL for (int i = block_x() * kLines + line; i < inner; i += kGroupsAtOnce * apart) {
    Frag<float, Value::kRun> x[kGroupsAtOnce];
    // A row that is not there is row i once more: a load behind a branch would wait for the one before it.
    UNROLL for (int j = 0; j < kGroupsAtOnce; ++j) x[j] =
        Value::eval(p, row + (i + j * apart < inner ? i + j * apart : i), col);
    UNROLL for (int j = 0; j < kGroupsAtOnce; ++j) {
      UNROLL for (int k = 0; k < Value::kRun; ++k) x[j].v[k] = i + j * apart < inner ? x[j].v[k] : 0.0f;
      sums.add(x[j]);
    }
  }
  return sums;
}

/// Adds what the block's threads found: thread t of the first gets total t of [2][kWidth], by store(t, total).
template <int kWidth, class Store>
DEV void groups_of_block(const float* shared, const Store& store) {
  constexpr int kLines = kGroupsThreads / kGroupsFragments;
  for (int t = thread_index(); t < 2 * kWidth; t += kGroupsThreads) {
    float total = 0;
    UNROLL_8 for (int l = 0; l < kLines; ++l) total += shared[(t / kWidth * kLines + l) * kWidth + t % kWidth];
    store(t, total);
  }
}

/// The same of a cluster's blocks, which meet in `of_blocks` of block 0: its threads get the totals.
template <int kCluster, int kWidth, class Store>
DEV void groups_of_cluster(const float* shared, float* of_blocks, const Store& store) {
  groups_of_block<kWidth>(shared, [&](int t, float total) {
    store_at(shared_address(of_blocks + cluster_rank() * 2 * kWidth + t), total, 0);
  });
  sync_cluster();
  if (cluster_rank() != 0) return;
  for (int t = thread_index(); t < 2 * kWidth; t += kGroupsThreads) {
    float total = 0;
    UNROLL for (int i = 0; i < kCluster; ++i) total += of_blocks[i * 2 * kWidth + t];
    store(t, total);
  }
}

/// True in the last block of these columns to come; what the others wrote is there.
template <class Params>
DEV bool groups_last(const Params& p, uint32_t* last) {
  fence_device();
  sync_block();
  if (thread_index() == 0) {
    uint32_t* arrived = p.sizes.arrived + block_z() * grid_y() + block_y();
    *last = atomic_add(arrived, 1u) + 1 == static_cast<uint32_t>(grid_x());
    if (*last) *arrived = 0;
  }
  sync_block();
  if (!*last) return false;
  fence_device();
  return true;
}

/// The last block of a range of columns adds the chunks: each thread some of them, for a few columns of one kind, which
/// meet in `shared`.
template <int kRun, class Params>
DEV void groups_finish(const Params& p, float* shared, float* sums, float* squares) {
  constexpr int kVector = kRun < 4 ? kRun : 4, kWidth = kGroupsFragments * kRun, kVectors = 2 * kWidth / kVector,
                kParts = kGroupsThreads / kVectors, kAtOnce = 8;
  const GroupsSizes& s = p.sizes;
  const int chunks = grid_x(), vector = thread_index() % kVectors, part = thread_index() / kVectors;
  const int kind = vector * kVector / kWidth, column = block_y() * kWidth + vector * kVector % kWidth;
  Frag<float, kVector> total = splat<kVector>(0.0f);
  if (column < s.channels) {
    const int64_t first = (static_cast<int64_t>(kind) * s.samples + block_z()) * chunks;
    NO_UNROLL for (int i = part; i < chunks; i += kAtOnce * kParts) {
      Frag<float, kVector> x[kAtOnce];
      UNROLL for (int j = 0; j < kAtOnce; ++j) x[j] = load<float, kVector>(
          s.partials + (first + (i + j * kParts < chunks ? i + j * kParts : i)) * s.channels + column);
      UNROLL for (int j = 0; j < kAtOnce; ++j) UNROLL for (int k = 0; k < kVector; ++k) total.v[k] +=
          i + j * kParts < chunks ? x[j].v[k] : 0.0f;
    }
  }
  store(shared + thread_index() * kVector, total);  // [kParts][2][kWidth]
  sync_block();
  for (int t = thread_index(); t < 2 * kWidth; t += kGroupsThreads) {
    float* out = t < kWidth ? sums : squares;
    const int c = block_y() * kWidth + t % kWidth;
    if (c >= s.channels || !out) continue;
    float sum = 0;
    UNROLL for (int i = 0; i < kParts; ++i) sum += shared[i * 2 * kWidth + t];
    out[static_cast<int64_t>(block_z()) * s.channels + c] = sum;
  }
}

/// Value: kRun; eval(p, row, col) yields kRun columns. Sums and Squares: where results go, or 0 for none. kCluster:
/// blocks of a cluster where the device has them, else 1. Grid: x = blocks along inner, y = kGroupsFragments * kRun
/// columns, z = samples.
template <class Value, int kCluster, class Params>
DEV void groups(const Params& p, float* sums, float* squares) {
  if constexpr (kCluster > 1)
    if (p.sizes.in_cluster) sync_cluster();  // all blocks are there to be written to
  griddep_wait();
  griddep_launch();
  constexpr int kRun = Value::kRun, kLines = kGroupsThreads / kGroupsFragments, kWidth = kGroupsFragments * kRun;
  const GroupsSizes& s = p.sizes;
  const int fragment = thread_index() % kGroupsFragments, line = thread_index() / kGroupsFragments;
  const int col = (block_y() * kGroupsFragments + fragment) * kRun;
  GroupsSums<kRun> found;
  if (col < s.channels) found = groups_of_rows<Value>(p, line, col);
  float* shared = reinterpret_cast<float*>(shared_memory());  // [2][kLines][kWidth]
  float* behind = shared + 2 * kLines * kWidth;
  store(shared + line * kWidth + fragment * kRun, found.sum);
  store(shared + (kLines + line) * kWidth + fragment * kRun, found.square);
  sync_block();
  const auto done = [&](int t, float total) {
    const int c = block_y() * kWidth + t % kWidth;
    float* out = t < kWidth ? sums : squares;
    if (c < s.channels && out) out[static_cast<int64_t>(block_z()) * s.channels + c] = total;
  };
  if (grid_x() == 1) return groups_of_block<kWidth>(shared, done);
  if constexpr (kCluster > 1)
    if (s.in_cluster) return groups_of_cluster<kCluster, kWidth>(shared, behind, done);
  groups_of_block<kWidth>(shared, [&](int t, float total) {
    const int c = block_y() * kWidth + t % kWidth;
    const int64_t sample = t / kWidth * s.samples + block_z();
    if (c < s.channels) s.partials[(sample * grid_x() + block_x()) * s.channels + c] = total;
  });
  if (groups_last(p, reinterpret_cast<uint32_t*>(behind))) groups_finish<kRun>(p, shared, sums, squares);
}

}  // namespace tenon::device
