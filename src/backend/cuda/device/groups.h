// The groups skeleton: sums and sums of squares over the inner axis of [samples, inner, channels]. A block sums a chunk
// of rows for a range of columns; the last block of a range to arrive adds the chunks in order, so that the result is
// the same on every run.
#pragma once
#include "tenon/device/elements.h"
#include "tenon/device/sizes.h"

namespace tenon::device {

inline constexpr int kGroupsThreads = 256,
                     kGroupsFragments = 8;  // threads along rows: kGroupsThreads / kGroupsFragments

/// Value: kRun; eval(p, row, col) yields kRun columns. Sums and Squares: where results go, or 0 for none.
/// Grid: x = blocks of kGroupsFragments * kRun columns, y = chunks, z = samples.
template <class Value, class Params>
DEV void groups(const Params& p, float* sums, float* squares) {
  griddep_launch();
  griddep_wait();
  constexpr int kRun = Value::kRun, kLines = kGroupsThreads / kGroupsFragments;
  const GroupsSizes& s = p.sizes;
  const int fragment = thread_index() % kGroupsFragments, line = thread_index() / kGroupsFragments;
  const int col = (block_x() * kGroupsFragments + fragment) * kRun, sample = block_z();
  const int begin = block_y() * s.chunk, end = begin + s.chunk < s.inner ? begin + s.chunk : s.inner;
  Frag<float, kRun> sum = splat<kRun>(0.0f), square = splat<kRun>(0.0f);
  if (col < s.channels)
    for (int i = begin + line; i < end; i += kLines) {
      const Frag<float, kRun> x = Value::eval(p, sample * s.inner + i, col);
      UNROLL for (int k = 0; k < kRun; ++k) {
        sum.v[k] += x.v[k];
        square.v[k] += x.v[k] * x.v[k];
      }
    }
  float* shared = reinterpret_cast<float*>(shared_memory());  // [2][kLines][kGroupsFragments * kRun]
  constexpr int kWidth = kGroupsFragments * kRun;
  UNROLL for (int k = 0; k < kRun; ++k) {
    shared[line * kWidth + fragment * kRun + k] = sum.v[k];
    shared[(kLines + line) * kWidth + fragment * kRun + k] = square.v[k];
  }
  sync_block();
  const int64_t plane = static_cast<int64_t>(s.samples) * s.chunks * s.channels;
  for (int t = thread_index(); t < 2 * kWidth; t += kGroupsThreads) {
    const int kind = t / kWidth, c = block_x() * kWidth + t % kWidth;
    if (c >= s.channels) continue;
    float total = 0;
    for (int l = 0; l < kLines; ++l) total += shared[(kind * kLines + l) * kWidth + t % kWidth];
    s.partials[kind * plane + (static_cast<int64_t>(sample) * s.chunks + block_y()) * s.channels + c] = total;
  }
  // The last block of these columns adds the chunks.
  uint32_t* last = reinterpret_cast<uint32_t*>(shared + 2 * kLines * kWidth);
  fence_device();
  sync_block();
  if (thread_index() == 0) {
    uint32_t* arrived = s.arrived + sample * grid_x() + block_x();
    *last = atomic_add(arrived, 1u) + 1 == static_cast<uint32_t>(s.chunks);
    if (*last) *arrived = 0;
  }
  sync_block();
  if (!*last) return;
  fence_device();
  for (int t = thread_index(); t < 2 * kWidth; t += kGroupsThreads) {
    const int kind = t / kWidth, c = block_x() * kWidth + t % kWidth;
    float* out = kind ? squares : sums;
    if (c >= s.channels || !out) continue;
    float total = 0;
    for (int i = 0; i < s.chunks; ++i)
      total += s.partials[kind * plane + (static_cast<int64_t>(sample) * s.chunks + i) * s.channels + c];
    out[static_cast<int64_t>(sample) * s.channels + c] = total;
  }
}

}  // namespace tenon::device
