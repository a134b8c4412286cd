// Attention with one thread per query, a core that is not in the tree: the kernel of single_core.cpp.
#pragma once
#include "tenon/backend/cuda/device/attention/attention_keys.h"
#include "tenon/backend/cuda/device/elements.h"

namespace tenon::device {

inline constexpr int kSingleThreads = 32;

/// grid.x: queries / kSingleThreads, grid.y: heads, grid.z: batch.
template <class Q, class K, class V, class Epilogue, class Params>
DEV void attention_single(const Params& p) {
  griddep_wait();
  griddep_launch();
  const AttentionSizes& s = p.sizes;
  const int query = block_x() * kSingleThreads + thread_index();
  if (query >= s.queries) return;
  const int row = (block_z() * s.heads + block_y()) * s.queries + query;
  const int first_key = (block_z() * s.kv_heads + block_y() / (s.heads / s.kv_heads)) * s.keys;
  const int seen = s.causal ? query + s.keys - s.queries + 1 : s.keys;
  const typename Q::Row q = Q::row(p, row);
  const auto score = [&](int key) {
    const typename K::Row k = K::row(p, first_key + key);
    float sum = 0;
    for (int d = 0; d < s.depth; ++d) sum += to_float(*Q::at(q, d)) * to_float(*K::at(k, d));
    return sum * s.scale;
  };
  float top = score(0), total = 0;
  for (int key = 1; key < seen; ++key) top = score(key) > top ? score(key) : top;
  for (int key = 0; key < seen; ++key) total += expf(score(key) - top);
  for (int column = 0; column < s.depth; column += Epilogue::kWidth) {
    Frag<float, Epilogue::kWidth> acc[1] = {};
    for (int key = 0; key < seen; ++key) {
      const typename V::Row v = V::row(p, first_key + key);
      const float weight = expf(score(key) - top) / total;
      for (int i = 0; i < Epilogue::kWidth; ++i) acc[0].v[i] += weight * to_float(*V::at(v, column + i));
    }
    Epilogue::store(p, row, column, Epilogue::compute(p, row, column, acc));
  }
}

}  // namespace tenon::device
