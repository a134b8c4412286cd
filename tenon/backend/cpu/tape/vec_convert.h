// Conversion between memory of any element type and f32 rows. Inclusion rules: see vec_kernels.h.
#pragma once
#include "tenon/core/dtype.h"

namespace tenon::cpu {
namespace {

typedef float VectorInMemory __attribute__((vector_size(4 * kLanes), aligned(1), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef uint8_t Bytes __attribute__((vector_size(kLanes)));
typedef Halves HalvesInMemory __attribute__((aligned(1), may_alias));
typedef Bytes BytesInMemory __attribute__((aligned(1), may_alias));
typedef Ints IntsInMemory __attribute__((aligned(1), may_alias));

/// x in all lanes. V{} + x would turn -0 into 0.
inline V splat(float x) { return x - V{}; }
inline V load_v(const float* p) { return *reinterpret_cast<const VectorInMemory*>(p); }
inline void store_v(float* p, V x) { *reinterpret_cast<VectorInMemory*>(p) = x; }
inline Words bits_of(V x) { return reinterpret_cast<Words>(x); }
inline V of_bits(Words x) { return reinterpret_cast<V>(x); }

inline Ints lane_numbers() {
  Ints i;
  for (int k = 0; k < kLanes; ++k) i[k] = k;
  return i;
}
/// a in the first n lanes, b in the others.
inline V keep_first(V a, V b, int64_t n) { return lane_numbers() < static_cast<int32_t>(n) ? a : b; }
/// Copies n < kLanes elements from p to dst in at most four moves.
template <class E>
inline void copy_tail(E* dst, const E* p, int64_t n) {
  if (n & 8) __builtin_memcpy(dst, p, 8 * sizeof(E)), dst += 8, p += 8;
  if (n & 4) __builtin_memcpy(dst, p, 4 * sizeof(E)), dst += 4, p += 4;
  if (n & 2) __builtin_memcpy(dst, p, 2 * sizeof(E)), dst += 2, p += 2;
  if (n & 1) __builtin_memcpy(dst, p, sizeof(E));
}
/// Elements in memory need not be aligned: weights may be at any offset of a file.
template <class E>
inline void copy_element(E* dst, const E* p) {
  __builtin_memcpy(dst, p, sizeof(E));
}
/// Up to kLanes floats at p without reading past the n-th; zeros after them.
inline V first_lanes(const float* p, int64_t n) {
  if (n >= kLanes) return load_v(p);
  float tail[kLanes] = {};
  copy_tail(tail, p, n);
  return load_v(tail);
}

// Storage types: element, vector of elements, and conversions.
struct AsF32 {
  using Element = float;
  using Packed = VectorInMemory;
  static V widen(V x) { return x; }
  static V narrow(V x) { return x; }
};
struct AsBf16 {
  using Element = uint16_t;
  using Packed = HalvesInMemory;
  static V widen(Halves h) { return of_bits(__builtin_convertvector(h, Words) << 16); }
  static Halves narrow(V x) {
    const Words u = bits_of(x);
    const Words rounded = u + 0x7fffu + (u >> 16 & 1u);
    return __builtin_convertvector((x != x ? u | 0x400000u : rounded) >> 16, Halves);
  }
};
struct AsF16 {
  using Element = uint16_t;
  using Packed = HalvesInMemory;
  static V widen(Halves h) { return from_f16(h); }
  static Halves narrow(V x) { return to_f16(x); }
};
struct AsE4m3 {
  using Element = uint8_t;
  using Packed = BytesInMemory;
  /// Shifted into an f16, the value is divided by 256; the NaN pattern would become 480.
  static V widen(Bytes b) {
    const Halves h = __builtin_convertvector(b, Halves);
    const V x = from_f16((h & 0x80) << 8 | (h & 0x7f) << 7) * 256.0f;
    return (bits_of(x) & 0x7fffffffu) == 0x43f00000u ? of_bits(Words{} + 0x7fc00000u) : x;
  }
  static Bytes narrow(V x) {
    const Words sign = bits_of(x) >> 24 & 0x80u;
    V a = of_bits(bits_of(x) & 0x7fffffffu);
    a = a > 448.0f ? splat(448) : a;
    const Words u = bits_of(a);
    const Words normal = ((u + 0x7ffffu + (u >> 20 & 1u)) >> 20) - (120u << 3);
    const Words small = bits_of(a + 16384.0f) - 0x46800000u;  // multiples of 2^-9, rounded by the addition
    const Words y = sign | (a < 0.015625f ? small : normal);
    return __builtin_convertvector(x != x ? sign | 0x7fu : y, Bytes);
  }
};

// Read only.
struct AsI32 {
  using Element = int32_t;
  using Packed = IntsInMemory;
  static V widen(Ints x) { return __builtin_convertvector(x, V); }
};

template <class C>
inline typename C::Element* memory_row(const MoveArgs& a, int64_t r) {
  return static_cast<typename C::Element*>(a.memory) + r * a.row_step;
}

// Rows that are contiguous on both sides are treated as one long row.
inline MoveArgs joined(const MoveArgs& a) {
  MoveArgs out = a;
  if (a.col_step == 1 && a.pad == 0 && a.row_step == a.cols && a.ld == a.cols) {
    out.cols = a.rows * a.cols;
    out.rows = 1;
  }
  return out;
}

template <class C>
inline V load_tail(const typename C::Element* p, int64_t n, int64_t step) {
  typename C::Element tail[kLanes] = {};
  if (step == 1 && n < kLanes)
    copy_tail(tail, p, n);
  else
    for (int64_t i = 0; i < n; ++i) copy_element(tail + i, p + i * step);
  return C::widen(*reinterpret_cast<const typename C::Packed*>(tail));
}

// Interleaves blocks of w lanes: blocks 0, 2, .. of a, each followed by the same block of b (kBeside: blocks 1, 3, ..).
template <int w, bool kBeside, size_t... K>
inline V blocks(V a, V b, std::index_sequence<K...>) {
  constexpr int n = kLanes;
  return __builtin_shufflevector(a, b,
                                 (static_cast<int>(K) / w % 2 ? n + static_cast<int>(K) - (kBeside ? 0 : w)
                                                              : static_cast<int>(K) + (kBeside ? w : 0))...);
}

// x[i][j] <-> x[j][i]: swaps w x w blocks across the diagonal, then recurses into blocks.
template <int w = kLanes / 2>
[[gnu::always_inline]] inline void transpose(V (&x)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i & w) continue;
    const V a = x[i], b = x[i + w];
    x[i] = blocks<w, false>(a, b, std::make_index_sequence<kLanes>());
    x[i + w] = blocks<w, true>(a, b, std::make_index_sequence<kLanes>());
  }
  if constexpr (w > 1) transpose<w / 2>(x);
}

// For rows that are adjacent in memory, with strided columns: loads squares of vectors, so each cache line is read
// once.
template <class C>
void load_turned(const MoveArgs& a) {
  for (int64_t r = 0; r < a.rows; r += kLanes) {
    const int64_t rows = a.rows - r < kLanes ? a.rows - r : kLanes;
    for (int64_t c = 0; c < a.cols; c += kLanes) {
      const int64_t cols = a.cols - c < kLanes ? a.cols - c : kLanes;
      const auto* p = static_cast<const typename C::Element*>(a.memory) + r + c * a.col_step;
      V x[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        x[i] = i >= cols        ? V{}
               : rows == kLanes ? C::widen(*reinterpret_cast<const typename C::Packed*>(p + i * a.col_step))
                                : load_tail<C>(p + i * a.col_step, rows, 1);
      transpose(x);
      for (int64_t i = 0; i < rows; ++i) {
        float* dst = a.slot + (r + i) * a.ld + c;
        if (cols == kLanes) {
          store_v(dst, x[i]);
        } else {
          float lanes[kLanes];
          store_v(lanes, x[i]);
          copy_tail(dst, lanes, cols);
        }
      }
    }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = 0; k < a.pad; ++k) a.slot[(r + i) * a.ld + a.cols + k] = 0;
  }
}

template <class C>
void load_rows(const MoveArgs& args) {
  if (args.row_step == 1 && args.col_step > 1 && args.rows > 1) return load_turned<C>(args);
  const MoveArgs a = joined(args);
  for (int64_t r = 0; r < a.rows; ++r) {
    const auto* p = memory_row<C>(a, r);
    float* dst = a.slot + r * a.ld;
    int64_t c = 0;
    if (a.col_step == 1) {
      for (; c + kLanes <= a.cols; c += kLanes)
        store_v(dst + c, C::widen(*reinterpret_cast<const typename C::Packed*>(p + c)));
    } else if (a.col_step == 0) {
      const V x = splat(load_tail<C>(p, 1, 1)[0]);
      for (; c + kLanes <= a.cols; c += kLanes) store_v(dst + c, x);
    } else {
      for (; c + kLanes <= a.cols; c += kLanes) store_v(dst + c, load_tail<C>(p + c * a.col_step, kLanes, a.col_step));
    }
    if (c < a.cols) {
      const V x = load_tail<C>(p + c * a.col_step, a.cols - c, a.col_step);
      float lanes[kLanes];
      store_v(lanes, x);
      copy_tail(dst + c, lanes, a.cols - c);
    }
    for (int64_t i = 0; i < a.pad; ++i) dst[a.cols + i] = 0;
  }
}

// The inverse: each cache line is written once.
template <class C>
void store_turned(const MoveArgs& a) {
  for (int64_t r = 0; r < a.rows; r += kLanes) {
    const int64_t rows = a.rows - r < kLanes ? a.rows - r : kLanes;
    for (int64_t c = 0; c < a.cols; c += kLanes) {
      const int64_t cols = a.cols - c < kLanes ? a.cols - c : kLanes;
      V x[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) x[i] = i < rows ? first_lanes(a.slot + (r + i) * a.ld + c, cols) : V{};
      transpose(x);
      auto* p = static_cast<typename C::Element*>(a.memory) + r + c * a.col_step;
      for (int64_t i = 0; i < cols; ++i, p += a.col_step) {
        const typename C::Packed y = C::narrow(x[i]);
        if (rows == kLanes)
          *reinterpret_cast<typename C::Packed*>(p) = y;
        else
          copy_tail(p, reinterpret_cast<const typename C::Element*>(&y), rows);
      }
    }
  }
}

template <class C>
void store_rows(const MoveArgs& args) {
  if (args.row_step == 1 && args.col_step > 1 && args.rows > 1) return store_turned<C>(args);
  const MoveArgs a = joined(args);
  for (int64_t r = 0; r < a.rows; ++r) {
    auto* p = memory_row<C>(a, r);
    const float* src = a.slot + r * a.ld;
    int64_t c = 0;
    if (a.col_step == 1)
      for (; c + kLanes <= a.cols; c += kLanes)
        *reinterpret_cast<typename C::Packed*>(p + c) = C::narrow(load_v(src + c));
    for (; c < a.cols; c += kLanes) {
      const int64_t n = a.cols - c < kLanes ? a.cols - c : kLanes;
      const typename C::Packed x = C::narrow(first_lanes(src + c, n));
      typename C::Element lanes[kLanes];
      __builtin_memcpy(lanes, &x, sizeof(lanes));
      if (a.col_step == 1)
        copy_tail(p + c, lanes, n);
      else
        for (int64_t i = 0; i < n; ++i) copy_element(p + (c + i) * a.col_step, lanes + i);
    }
  }
}

// Types that no hot path uses: one element at a time.
template <DType kType>
void load_scalars(const MoveArgs& a) {
  for (int64_t r = 0; r < a.rows; ++r) {
    float* dst = a.slot + r * a.ld;
    for (int64_t c = 0; c < a.cols; ++c)
      dst[c] = static_cast<float>(load_element(kType, a.memory, r * a.row_step + c * a.col_step));
    for (int64_t i = 0; i < a.pad; ++i) dst[a.cols + i] = 0;
  }
}
template <DType kType>
void store_scalars(const MoveArgs& a) {
  for (int64_t r = 0; r < a.rows; ++r)
    for (int64_t c = 0; c < a.cols; ++c)
      store_element(kType, a.memory, r * a.row_step + c * a.col_step, static_cast<double>(a.slot[r * a.ld + c]));
}

MoveFn load_of(DType t) {
  switch (t) {
    case DType::F32:
      return &load_rows<AsF32>;
    case DType::BF16:
      return &load_rows<AsBf16>;
    case DType::F16:
      return &load_rows<AsF16>;
    case DType::E4M3:
      return &load_rows<AsE4m3>;
    case DType::F64:
      return &load_scalars<DType::F64>;
    case DType::I64:
      return &load_scalars<DType::I64>;
    case DType::I32:
      return &load_rows<AsI32>;
    case DType::I16:
      return &load_scalars<DType::I16>;
    case DType::I8:
      return &load_scalars<DType::I8>;
    case DType::U8:
      return &load_scalars<DType::U8>;
    case DType::Bool:
      return &load_scalars<DType::Bool>;
  }
  return nullptr;
}

MoveFn store_of(DType t) {
  switch (t) {
    case DType::F32:
      return &store_rows<AsF32>;
    case DType::BF16:
      return &store_rows<AsBf16>;
    case DType::F16:
      return &store_rows<AsF16>;
    case DType::E4M3:
      return &store_rows<AsE4m3>;
    case DType::F64:
      return &store_scalars<DType::F64>;
    case DType::I64:
      return &store_scalars<DType::I64>;
    case DType::I32:
      return &store_scalars<DType::I32>;
    case DType::I16:
      return &store_scalars<DType::I16>;
    case DType::I8:
      return &store_scalars<DType::I8>;
    case DType::U8:
      return &store_scalars<DType::U8>;
    case DType::Bool:
      return &store_scalars<DType::Bool>;
  }
  return nullptr;
}

}  // namespace
}  // namespace tenon::cpu
