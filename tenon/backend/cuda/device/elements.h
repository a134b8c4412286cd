// Element types as kernels see them, and fragments: N elements moved together. Conversions round to nearest even and
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

/// Numbers of every type that a tensor may hold; integers and doubles are converted.
template <class T>
DEV float to_float(T x) {
  return static_cast<float>(x);
}
DEV float to_float(BF16 x) { return bits_to_float(static_cast<uint32_t>(x.bits) << 16); }
DEV float to_float(F16 x) { return f16_to_float(x.bits); }
DEV float to_float(E4M3 x) { return e4m3_to_float(x.bits); }

/// Integers: towards zero, saturated, 0 for NaN. A plain conversion leaves what is out of range to the compiler.
template <class T>
DEV T from_float(float x) {
  if constexpr (static_cast<T>(0.5f) == static_cast<T>(0)) {
    constexpr bool kSigned = static_cast<T>(-1) < static_cast<T>(0);
    constexpr int kBits = sizeof(T) * 8 - (kSigned ? 1 : 0);
    constexpr uint64_t kMost = (uint64_t{1} << kBits) - 1;
    constexpr float kEnd = static_cast<float>(kMost / 2 + 1) * 2;
    if (x != x) return 0;
    if (x >= kEnd) return static_cast<T>(kMost);
    if (x < (kSigned ? -kEnd : 0.0f)) return kSigned ? static_cast<T>(~static_cast<T>(kMost)) : static_cast<T>(0);
  }
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

/// N contiguous elements, aligned so that they move in accesses of up to 16 bytes.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Frag {
  T v[N];
};

template <class T, int N>
DEV Frag<T, N> load(const T* p) {
  return *reinterpret_cast<const Frag<T, N>*>(p);
}
/// The same, bypassing L1, which may hold stale values: for use before griddep_wait().
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
/// By the 32 bits of two elements: taken from 16 bits each, the second one costs three instructions.
template <int N>
requires(N % 2 == 0) DEV Frag<float, N> to_floats(const Frag<BF16, N>& x) {
  Frag<float, N> out;
  UNROLL for (int i = 0; i < N; i += 2) {
    uint32_t two;
    memcpy(&two, x.v + i, sizeof(two));
    out.v[i] = bits_to_float(two << 16), out.v[i + 1] = bits_to_float(two & 0xffff0000u);
  }
  return out;
}
/// Two adjacent elements: the hardware converts pairs.
DEV void from_two(BF16* to, float low, float high) {
  const uint32_t two = floats_to_bf16(low, high);
  memcpy(to, &two, sizeof(two));
}
DEV void from_two(F16* to, float low, float high) {
  const uint32_t two = floats_to_f16(low, high);
  memcpy(to, &two, sizeof(two));
}
DEV void from_two(E4M3* to, float low, float high) {
  const uint16_t two = floats_to_e4m3(low, high);
  memcpy(to, &two, sizeof(two));
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
/// Four of them fill a register.
template <>
DEV Frag<E4M3, 8> from_floats<E4M3, 8>(const Frag<float, 8>& x) {
  Frag<E4M3, 8> out;
  UNROLL for (int i = 0; i < 8; i += 4) {
    const uint32_t four =
        floats_to_e4m3(x.v[i], x.v[i + 1]) | static_cast<uint32_t>(floats_to_e4m3(x.v[i + 2], x.v[i + 3])) << 16;
    memcpy(out.v + i, &four, sizeof(four));
  }
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

/// Quotients by one divisor. The compiler's division branches for each element, which serializes them; this is the same
/// arithmetic without the branch: two Newton steps from a / b = a * (1 / b). It is correctly rounded if |a| is at least
/// 2^-100 and |a / b| at least 2^-126; below that it may be off by an ulp or two. For dividends of at most 11
/// significant bits, as all 16-bit numbers have, one step suffices (tested for all of them and all divisors).
/// `bounded`: |a / b| is less than 2^127 if b is between 2^-100 and 2^100.
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
    float q = first;  // subtracts the excess, so that 0 keeps its sign for positive divisors
    UNROLL for (int i = 0; i < kSteps; ++i) q = fused_multiply_add(fused_multiply_add(q, b_, -a), -inverse_, q);
    // A step would turn infinity into NaN.
    return bounded || (float_to_bits(first) & 0x7fffffffu) != 0x7f800000u ? q : first;
  }
  float b_, inverse_;
  bool steps_;
};

}  // namespace tenon::device
