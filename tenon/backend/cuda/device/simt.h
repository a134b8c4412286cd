// Products, convolutions and attention in f32 on the CUDA cores: for f32 plans, and as the reference for the
// tensor-core kernels. Operands are functors of single elements, so that any hole is computed where it is read.
#pragma once
#include "tenon/backend/cuda/device/attention_keys.h"
#include "tenon/backend/cuda/device/elements.h"

namespace tenon::device {

inline constexpr int kSimtAttentionThreads = 128;

template <class Epilogue, class Params, class Sums>
DEV void store_result(const Params& p, int row, int col, const Sums& acc) {
  Epilogue::store(p, row, col, Epilogue::compute(p, row, col, acc));
}

/// One query per block, 128 keys at a time. Grid: x = queries, y = heads, z = batch. Depth up to 512.
template <class Q, class K, class V, class Epilogue, class Keys = AllKeys, class Lse = NoLse, class Params>
DEV void attention_simt(const Params& p) {
  griddep_wait();
  griddep_launch();
  constexpr int kThreads = kSimtAttentionThreads, kWide = 4;
  const AttentionSizes s = sizes_of_entry<Keys>(p, block_z());
  const int query = block_x(), row = (block_z() * s.heads + block_y()) * s.queries + query;
  const int kv = (block_z() * s.kv_heads + block_y() / (s.heads / s.kv_heads)) * (s.capacity ? s.capacity : s.keys),
            t = thread_index();
  const int seen = s.causal && query + s.keys - s.queries + 1 < s.keys ? query + s.keys - s.queries + 1 : s.keys;
  float* q = reinterpret_cast<float*>(shared_memory());  // [depth]
  float* weights = q + s.depth;
  for (int d = t; d < s.depth; d += kThreads) q[d] = Q::eval(p, row, d).v[0];
  float top = bits_to_float(0xff800000u), total = 0, out[kWide] = {};
  for (int k0 = 0; k0 < seen; k0 += kThreads) {
    sync_block();
    float score = bits_to_float(0xff800000u);
    if (k0 + t < seen) {
      score = 0;
      for (int d = 0; d < s.depth; ++d) score += q[d] * K::eval(p, kv + k0 + t, d).v[0];
      score *= s.scale;
    }
    weights[t] = score;
    sync_block();
    float next = top;
    for (int k = 0; k < kThreads; ++k) next = next < weights[k] || weights[k] != weights[k] ? weights[k] : next;
    sync_block();
    weights[t] = k0 + t < seen ? expf(score - next) : 0.0f;
    sync_block();
    const float keep = top == bits_to_float(0xff800000u) ? 0.0f : expf(top - next);
    top = next;
    total *= keep;
    UNROLL for (int w = 0; w < kWide; ++w) out[w] *= keep;
    const int here = seen - k0 < kThreads ? seen - k0 : kThreads;
    for (int k = 0; k < here; ++k) {
      total += weights[k];
      UNROLL for (int w = 0; w < kWide; ++w) {
        const int d = w * kThreads + t;
        if (d < s.depth) out[w] += weights[k] * V::eval(p, kv + k0 + k, d).v[0];
      }
    }
  }
  sync_block();
  UNROLL for (int w = 0; w < kWide; ++w) {
    const int d = w * kThreads + t;
    if (d < s.depth) q[d] = out[w] / total;
  }
  if constexpr (Lse::kWanted)
    if (t == 0) Lse::store(p, row, total == 0 ? bits_to_float(0xff800000u) : top + logf(total));
  sync_block();
  for (int d = t * Epilogue::kRun; d < s.depth; d += kThreads * Epilogue::kRun) {
    Frag<float, Epilogue::kRun> acc[1];
    UNROLL for (int k = 0; k < Epilogue::kRun; ++k) acc[0].v[k] = q[d + k];
    store_result<Epilogue>(p, row, d, acc);
  }
}

}  // namespace tenon::device
