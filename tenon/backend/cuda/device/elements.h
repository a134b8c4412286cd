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
/// Two that lie side by side: the machine converts pairs.
DEV void from_two(BF16* to, float low, float high) {
  const uint32_t two = floats_to_bf16(low, high);
  to[0].bits = static_cast<uint16_t>(two), to[1].bits = static_cast<uint16_t>(two >> 16);
}
DEV void from_two(F16* to, float low, float high) {
  const uint32_t two = floats_to_f16(low, high);
  to[0].bits = static_cast<uint16_t>(two), to[1].bits = static_cast<uint16_t>(two >> 16);
}
DEV void from_two(E4M3* to, float low, float high) {
  const uint16_t two = floats_to_e4m3(low, high);
  to[0].bits = static_cast<uint8_t>(two), to[1].bits = static_cast<uint8_t>(two >> 8);
}
template <class T>
DEV void from_two(T* to, float low, float high) {
  to[0] = from_float<T>(low), to[1] = from_float<T>(high);
}
template <class T, int N>
DEV Frag<T, N> from_floats(const Frag<float, N>& x) {
  Frag<T, N> out;
  UNROLL for (int i = 0; i + 1 < N; i += 2) from_two(out.v + i, x.v[i], x.v[i + 1]);
  if constexpr (N % 2) out.v[N - 1] = from_float<T>(x.v[N - 1]);
  return out;
}
/// Element k is x's element kFrom[k].
template <int... kFrom>
DEV Frag<float, sizeof...(kFrom)> rearranged(const Frag<float, sizeof...(kFrom)>& x) {
  return {{x.v[kFrom]...}};
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
template <class T, int N>
DEV Frag<float, N> round_to(const Frag<float, N>& x) {
  return to_floats(from_floats<T>(x));
}

/// Quotients by one divisor. The compiler's division is a branch an element, which the next one waits behind; this is
/// its arithmetic without: two steps of Newton from a / b = a * (1 / b), rounded as a division is where |a| is at least
/// 2^-100 and |a / b| 2^-126; below, it may be an ulp or two from that. For dividends of at most 11 binary digits,
/// which all numbers of 16 bits have, one step does (tried for all of them and all divisors). `bounded`: |a / b| is
/// less than 2^127 if b is between 2^-100 and 2^100.
class Quotients {
 public:
  DEV explicit Quotients(float divisor) : b_(divisor), inverse_(1.0f / divisor) {
    const uint32_t size = float_to_bits(divisor);
    steps_ = size > 27u << 23 && size < 227u << 23;  // 2^-100 to 2^100, not negative
  }
  template <int kSteps, bool bounded, int N>
  DEV Frag<float, N> of(const Frag<float, N>& a) const {
    Frag<float, N> out;
    if (steps_) {
      UNROLL for (int k = 0; k < N; ++k) out.v[k] = in_steps<kSteps, bounded>(a.v[k]);
    } else {
      UNROLL for (int k = 0; k < N; ++k) out.v[k] = a.v[k] / b_;
    }
    return out;
  }

 private:
  template <int kSteps, bool bounded>
  DEV float in_steps(float a) const {
    const float first = a * inverse_;
    float q = first;  // minus what is too much: so 0 keeps its sign, for positive divisors
    UNROLL for (int i = 0; i < kSteps; ++i) q = fused_multiply_add(fused_multiply_add(q, b_, -a), -inverse_, q);
    // A step would make NaN of infinity.
    return bounded || (float_to_bits(first) & 0x7fffffffu) != 0x7f800000u ? q : first;
  }
  float b_, inverse_;
  bool steps_;
};

}  // namespace tenon::device
