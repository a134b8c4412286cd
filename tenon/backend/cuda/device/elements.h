// Element types as kernels see them, and fragments: N of them that move as one. Conversions round to nearest even and
// agree bit for bit with tenon/core/dtype.h.
#pragma once
#include "tenon/backend/cuda/device/index.h"
#include "tenon/backend/cuda/device/vocabulary.h"

namespace tenon::device {

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
struct E4M3 {
  uint8_t bits;
};

/// Numbers of every type that a tensor may hold; whole numbers and doubles by conversion.
template <class T>
DEV float to_float(T x) {
  return static_cast<float>(x);
}
DEV float to_float(BF16 x) { return bits_to_float(static_cast<uint32_t>(x.bits) << 16); }
DEV float to_float(F16 x) { return f16_to_float(x.bits); }
DEV float to_float(E4M3 x) { return e4m3_to_float(x.bits); }

/// Whole numbers are cut towards zero.
template <class T>
DEV T from_float(float x) {
  return static_cast<T>(x);
}
template <>
DEV BF16 from_float<BF16>(float x) {
  return {float_to_bf16(x)};
}
template <>
DEV F16 from_float<F16>(float x) {
  return {float_to_f16(x)};
}
template <>
DEV E4M3 from_float<E4M3>(float x) {
  return {float_to_e4m3(x)};
}

/// N elements side by side, aligned so that they move in one access of up to 16 bytes.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Frag {
  T v[N];
};

template <class T, int N>
DEV Frag<T, N> load(const T* p) {
  return *reinterpret_cast<const Frag<T, N>*>(p);
}
/// The same past the first-level cache, where older values may lie: in front of griddep_wait().
template <class T, int N>
DEV Frag<T, N> load_past_l1(const T* p) {
  Frag<T, N> x;
  copy_past_l1<sizeof(x)>(&x, p);
  return x;
}
template <class T, int N>
DEV void store(T* p, const Frag<T, N>& x) {
  *reinterpret_cast<Frag<T, N>*>(p) = x;
}

template <class T, int N>
DEV Frag<float, N> to_floats(const Frag<T, N>& x) {
  Frag<float, N> out;
  UNROLL for (int i = 0; i < N; ++i) out.v[i] = to_float(x.v[i]);
  return out;
}
template <class T, int N>
DEV Frag<T, N> from_floats(const Frag<float, N>& x) {
  Frag<T, N> out;
  UNROLL for (int i = 0; i < N; ++i) out.v[i] = from_float<T>(x.v[i]);
  return out;
}
template <int N>
DEV Frag<float, N> splat(float x) {
  Frag<float, N> out;
  UNROLL for (int i = 0; i < N; ++i) out.v[i] = x;
  return out;
}

/// x rounded to the values of T: a rounding point inside a chain.
template <class T>
DEV float round_to(float x) {
  return to_float(from_float<T>(x));
}

}  // namespace tenon::device
