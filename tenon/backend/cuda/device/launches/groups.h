// The groups skeleton: moments (moments.h) over the inner axis of [samples, inner, channels]. A block takes some of the
// rows (a chunk) for a range of columns; each thread takes a few columns in some rows. If a cluster holds all blocks of
// a range, it combines them in shared memory; otherwise the last block of a range to arrive combines the chunks. Both
// in a fixed order: the result is the same in every run.
#pragma once
#include "tenon/backend/cuda/device/elements.h"
#include "tenon/backend/cuda/device/launches/moments.h"
#include "tenon/backend/cuda/device/launches/sizes.h"

namespace tenon::device {

inline constexpr int kGroupsLines = kGroupsThreads / kGroupsFragments;
inline constexpr int kGroupsAtOnce = 4;  // rows per thread whose loads are in flight together

/// How rows are distributed: line `line` of block `block` along the inner axis takes every `apart`-th row.
struct GroupsRows {
  int apart, each, more;  ///< the first `more` of all lines have one row more
  DEV GroupsRows(int inner, int blocks)
      : apart(blocks * kGroupsLines), each(inner / apart), more(inner - each * apart) {}
  DEV float of_line(int block, int line) const {
    return static_cast<float>(each + (block * kGroupsLines + line < more));
  }
  DEV float of_block(int block) const {
    const int longer = more - block * kGroupsLines;
    return static_cast<float>(each * kGroupsLines + (longer < 0 ? 0 : longer < kGroupsLines ? longer : kGroupsLines));
  }
};

/// Moments of the columns of a fragment.
template <int kWidth>
struct GroupsMoments {
  float count = 0;
  Frag<float, kWidth> mean = splat<kWidth>(0.0f), m2 = splat<kWidth>(0.0f);
  /// Adds the first `rows` of x, as deviations from the first one.
  DEV void add(const Frag<float, kWidth> (&x)[kGroupsAtOnce], int rows) {
    const float n = static_cast<float>(rows), each = divide(1.0f, n);
    const MomentWeights w = MomentWeights::of(count, n);
    count += n;
    UNROLL for (int k = 0; k < kWidth; ++k) {
      float sum = 0, squares = 0;
      UNROLL for (int j = 1; j < kGroupsAtOnce; ++j) {
        const float apart = j < rows ? x[j].v[k] - x[0].v[k] : 0.0f;
        sum += apart;
        squares += apart * apart;
      }
      const float shift = sum * each, apart = x[0].v[k] - mean.v[k] + shift;
      mean.v[k] += w.to_other * apart;
      m2.v[k] += squares - sum * shift;
      m2.v[k] += w.spread * apart * apart;
    }
  }
};

/// A thread's moments over its rows. All blocks move from the first row to the last together, one row per line of
/// threads.
template <class Value, class Params>
DEV GroupsMoments<Value::kWidth> groups_of_rows(const Params& p, int line, int col) {
  const int inner = p.sizes.inner, row = block_z() * inner, apart = grid_x() * kGroupsLines;
  GroupsMoments<Value::kWidth> moments;
  NO_UNROLL for (int i = block_x() * kGroupsLines + line; i < inner; i += kGroupsAtOnce * apart) {
    Frag<float, Value::kWidth> x[kGroupsAtOnce];
    int rows = 0;
    // A missing row repeats row i: a load behind a branch would wait for the previous load.
    UNROLL for (int j = 0; j < kGroupsAtOnce; ++j) {
      const bool present = i + j * apart < inner;
      x[j] = Value::eval(p, row + (present ? i + j * apart : i), col);
      rows += present;
    }
    moments.add(x, rows);
  }
  return moments;
}

/// Combines parts of each column, [kParts][count, mean, m2][kBlockColumns] in shared memory: thread c of the first
/// kBlockColumns gets column c's result through store(c, moments).
template <int kParts, int kBlockColumns, class Store>
DEV void groups_join(const float* parts, const Store& store) {
  sync_block();
  for (int c = thread_index(); c < kBlockColumns; c += kGroupsThreads) {
    MomentSums sums;
    UNROLL_8 for (int i = 0; i < kParts; ++i) {
      const float* part = parts + 3 * i * kBlockColumns + c;
      sums.add({part[0], part[kBlockColumns], part[2 * kBlockColumns]});
    }
    store(c, sums.total());
  }
}
template <int kBlockColumns>
DEV void groups_put(float* parts, int part, int c, const Moments& moments) {
  float* at = parts + 3 * part * kBlockColumns + c;
  at[0] = moments.count;
  at[kBlockColumns] = moments.mean;
  at[2 * kBlockColumns] = moments.m2;
}

/// Combines the results of the block's threads, means and m2 in lines[2][kGroupsLines][kBlockColumns]: first all
/// threads combine some lines each into `parts`, then the first kBlockColumns threads combine those, one column each,
/// and call store(c, moments).
template <int kBlockColumns, class Store>
DEV void groups_of_block(const GroupsRows& rows, const float* lines, float* parts, const Store& store) {
  constexpr int kParts = kGroupsThreads / kBlockColumns;
  static_assert(kGroupsLines % kParts == 0);
  const int c = thread_index() % kBlockColumns, part = thread_index() / kBlockColumns;
  MomentSums sums;
  UNROLL for (int i = 0; i < kGroupsLines / kParts; ++i) {
    const int line = i * kParts + part;
    sums.add({rows.of_line(block_x(), line), lines[line * kBlockColumns + c],
              lines[(kGroupsLines + line) * kBlockColumns + c]});
  }
  groups_put<kBlockColumns>(parts, part, c, sums.total());
  groups_join<kParts, kBlockColumns>(parts, store);
}

/// Combines in the same way what a cluster's blocks stored in this block's of_blocks[kCluster][2][kBlockColumns].
template <int kCluster, int kBlockColumns, class Store>
DEV void groups_of_cluster(const GroupsRows& rows, const float* of_blocks, const Store& store) {
  for (int c = thread_index(); c < kBlockColumns; c += kGroupsThreads) {
    MomentSums sums;
    UNROLL for (int i = 0; i < kCluster; ++i) {
      const float* at = of_blocks + i * 2 * kBlockColumns + c;
      sums.add({rows.of_block(i), at[0], at[kBlockColumns]});
    }
    store(c, sums.total());
  }
}

/// True in the last block of these columns to arrive; the other blocks' writes are then visible.
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

/// The last block of a range of columns combines the chunks: each thread some of them for a few columns, then across
/// threads through `shared`. (There are few partial results: offsets fit in 32 bits, which saves registers.)
template <int kWidth, class Params, class Store>
DEV void groups_finish(const Params& p, const GroupsRows& rows, float* shared, const Store& store) {
  constexpr int kVector = kWidth < 2 ? kWidth : 2, kBlockColumns = kGroupsFragments * kWidth,
                kVectors = kBlockColumns / kVector, kParts = kGroupsThreads / kVectors, kAtOnce = 8;
  static_assert(3 * kParts * kBlockColumns <= 2 * kGroupsLines * kBlockColumns + 3 * kGroupsThreads,
                "they fit where lines were");
  const GroupsSizes& s = p.sizes;
  const int chunks = grid_x(), vector = thread_index() % kVectors * kVector, part = thread_index() / kVectors;
  const int column = block_y() * kBlockColumns + vector;
  MomentSums sums[kVector];
  if (column < s.channels) {
    const uint32_t means = block_z() * chunks * s.channels + column, m2 = means + s.samples * chunks * s.channels;
    NO_UNROLL for (int i = part; i < chunks; i += kAtOnce * kParts) {
      Frag<float, kVector> x[kAtOnce], y[kAtOnce];
      UNROLL for (int j = 0; j < kAtOnce; ++j) {
        const uint32_t at = (i + j * kParts < chunks ? i + j * kParts : i) * s.channels;
        x[j] = load<float, kVector>(s.partials + (means + at));
        y[j] = load<float, kVector>(s.partials + (m2 + at));
      }
      UNROLL for (int j = 0; j < kAtOnce; ++j) {
        const int chunk = i + j * kParts;
        if (chunk >= chunks) continue;
        UNROLL for (int k = 0; k < kVector; ++k) sums[k].add({rows.of_block(chunk), x[j].v[k], y[j].v[k]});
      }
    }
  }
  UNROLL for (int k = 0; k < kVector; ++k) groups_put<kBlockColumns>(shared, part, vector + k, sums[k].total());
  groups_join<kParts, kBlockColumns>(shared, store);
}

/// Value: kWidth; eval(p, row, col) gives kWidth columns. Statistics: store(p, sample * channels + channel, moments).
/// kCluster: blocks per cluster if the device has clusters, else 1. Grid: x = blocks along inner, y = kGroupsFragments
/// * kWidth columns, z = samples.
template <class Value, int kCluster, class Statistics, class Params>
DEV void groups(const Params& p) {
  if constexpr (kCluster > 1)
    if (p.sizes.in_cluster) sync_cluster();  // all blocks have started and can be written to
  griddep_wait();
  griddep_launch();
  constexpr int kWidth = Value::kWidth, kBlockColumns = kGroupsFragments * kWidth;
  const GroupsSizes& s = p.sizes;
  const int fragment = thread_index() % kGroupsFragments, line = thread_index() / kGroupsFragments;
  const int col = (block_y() * kGroupsFragments + fragment) * kWidth;
  GroupsMoments<kWidth> found;
  if (col < s.channels) found = groups_of_rows<Value>(p, line, col);
  const GroupsRows rows(s.inner, grid_x());
  uint32_t* last = reinterpret_cast<uint32_t*>(shared_memory());
  float* lines = reinterpret_cast<float*>(last + 4);  // [2][kGroupsLines][kBlockColumns]
  float *parts = lines + 2 * kGroupsLines * kBlockColumns, *of_blocks = parts + 3 * kGroupsThreads;
  store(lines + line * kBlockColumns + fragment * kWidth, found.mean);
  store(lines + (kGroupsLines + line) * kBlockColumns + fragment * kWidth, found.m2);
  sync_block();
  const auto done = [&](int c, const Moments& moments) {
    const int channel = block_y() * kBlockColumns + c;
    if (channel < s.channels) Statistics::store(p, static_cast<int64_t>(block_z()) * s.channels + channel, moments);
  };
  const bool alone = grid_x() == 1, in_cluster = kCluster > 1 && s.in_cluster;
  groups_of_block<kBlockColumns>(rows, lines, parts, [&](int c, const Moments& moments) {
    if (alone) return done(c, moments);
    if constexpr (kCluster > 1) {
      if (in_cluster) {
        const float* at = of_blocks + cluster_rank() * 2 * kBlockColumns + c;
        store_at(shared_address(at), moments.mean, 0);
        store_at(shared_address(at + kBlockColumns), moments.m2, 0);
        return;
      }
    }
    const int channel = block_y() * kBlockColumns + c;
    if (channel >= s.channels) return;
    float* mean = s.partials + (static_cast<int64_t>(block_z()) * grid_x() + block_x()) * s.channels + channel;
    mean[0] = moments.mean;
    mean[static_cast<int64_t>(s.samples) * grid_x() * s.channels] = moments.m2;
  });
  if (alone) return;
  if constexpr (kCluster > 1) {
    if (in_cluster) {
      sync_cluster();
      if (cluster_rank() == 0) groups_of_cluster<kCluster, kBlockColumns>(rows, of_blocks, done);
      return;
    }
  }
  if (groups_last(p, last)) groups_finish<kWidth>(p, rows, lines, done);
}

}  // namespace tenon::device
