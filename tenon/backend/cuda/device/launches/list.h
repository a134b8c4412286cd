// The map skeleton over a list of tensors in one kernel call. The argument holds the list itself, a pointer for each
// vector of each item, so that nothing is copied to the device first and a recorded call keeps all it needs. A block
// processes one chunk of one item.
#pragma once
#include "tenon/backend/cuda/device/elements.h"
#include "tenon/backend/cuda/device/launches/list_sizes.h"

namespace tenon::device {

inline constexpr int kListThreads = 256;

/// Elements [begin, begin + count) of an item. `wide`: whole fragments may be moved.
struct ListChunk {
  int item;
  int64_t begin;
  int count;
  bool wide;
};

/// The chunk of block x: the last item that begins at or before it.
template <class Params>
DEV ListChunk list_chunk(const Params& p) {
  const int chunk = block_x();
  int low = 0, high = p.sizes.items;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (p.items[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle;
  }
  ListChunk c;
  c.item = low;
  c.begin = static_cast<int64_t>(chunk - p.items[low].first_chunk) * p.sizes.chunk;
  const int64_t left = p.items[low].count - c.begin;
  c.count = left < p.sizes.chunk ? static_cast<int>(left) : p.sizes.chunk;
  c.wide = p.items[low].wide != 0;
  return c;
}

/// Program, Single: for kWidth columns and for one; eval(q, row, col) computes and stores them. Elements are counted
/// from the start of the chunk, to which the pointers of `q` point.
template <class Program, class Single, class Params>
DEV void list_map(const Params& q, const ListChunk& c) {
  constexpr int kWidth = Program::kWidth;
  const int whole = c.wide ? c.count / kWidth : 0;
  constexpr int kAtOnce = Program::kAtOnce;  // fragments whose loads are in flight together
  int at = thread_index();
  for (; at + (kAtOnce - 1) * kListThreads < whole; at += kAtOnce * kListThreads) {
    typename Program::Loads loads[kAtOnce];
    UNROLL for (int j = 0; j < kAtOnce; ++j) loads[j] = Program::loads(q, 0, (at + j * kListThreads) * kWidth);
    UNROLL for (int j = 0; j < kAtOnce; ++j) Program::results(q, 0, (at + j * kListThreads) * kWidth, loads[j]);
  }
  for (; at < whole; at += kListThreads) Program::eval(q, 0, at * kWidth);
  for (int i = whole * kWidth + thread_index(); i < c.count; i += kListThreads) Single::eval(q, 0, i);
}

/// The same for programs that return their result: `found` becomes the largest `number` of an item with a nonzero
/// element. Numbers decrease along the list, so that is the first such item.
template <class Program, class Single, class Params>
DEV void list_find(const Params& q, const ListChunk& c, uint32_t* found, uint32_t number) {
  constexpr int kWidth = Program::kWidth;
  const int whole = c.wide ? c.count / kWidth : 0;
  bool any = false;
  for (int i = thread_index(); i < whole; i += kListThreads) {
    const Frag<float, kWidth> x = Program::eval(q, 0, i * kWidth);
    UNROLL for (int k = 0; k < kWidth; ++k) any = any || x.v[k] != 0.0f;
  }
  for (int i = whole * kWidth + thread_index(); i < c.count; i += kListThreads)
    any = any || Single::eval(q, 0, i).v[0] != 0.0f;
  if (any) atomic_max(found, number);
}

}  // namespace tenon::device
