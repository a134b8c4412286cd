// The maths available to node bodies, for every type a body is instantiated with: double (the oracle), float, and GCC
// vectors of float (the CPU's tape interpreter). Device compilers get the same names for float.
#pragma once
#ifdef TENON_DEVICE
#include "tenon/core/hd_device.h"
#else
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

// Always inlined: files compiled for different instruction sets instantiate the same bodies, and a shared out-of-line
// copy would run on machines that lack its instructions.
#define HD [[gnu::always_inline]]

namespace tenon::hd {

template <class V>
concept ScalarValue = std::is_floating_point_v<V>;

// Width and related types of a GCC vector of float.
template <class V>
struct VecTraits {
  static constexpr int kLanes = sizeof(V) / sizeof(float);
  typedef int32_t Int __attribute__((vector_size(sizeof(V))));
  typedef uint32_t Bits __attribute__((vector_size(sizeof(V))));
};

/// The scalar type of V: double for double, float for float and vectors of float.
template <class V>
struct ScalarOf {
  using type = float;
};
template <>
struct ScalarOf<double> {
  using type = double;
};
template <class V>
using Scalar = typename ScalarOf<V>::type;

/// s in all lanes.
template <class V>
HD inline V splat(Scalar<V> s) {
  if constexpr (ScalarValue<V>)
    return s;
  else
    return s - V{};  // minus, so that -0 stays -0
}

template <class V, class M>
HD inline V select(M mask, V a, V b) {
  return mask ? a : b;
}

// Lane by lane with the scalar library: exact, for functions outside hot paths.
template <class V, class F>
HD inline V per_lane(V x, F f) {
  for (int i = 0; i < VecTraits<V>::kLanes; ++i) x[i] = f(x[i]);
  return x;
}

template <class V>
HD inline V abs(V x) {
  if constexpr (ScalarValue<V>) {
    return std::abs(x);
  } else {
    using Bits = typename VecTraits<V>::Bits;
    return reinterpret_cast<V>(reinterpret_cast<Bits>(x) & 0x7fffffffu);
  }
}
template <class V>
HD inline V min(V a, V b) {
  return select<V>(a < b, a, b);
}
template <class V>
HD inline V max(V a, V b) {
  return select<V>(a > b, a, b);
}

/// a * b + c, rounded once.
template <class V>
HD inline V fma(V a, V b, V c) {
  if constexpr (ScalarValue<V>) {
    return std::fma(a, b, c);
  } else {
    for (int i = 0; i < VecTraits<V>::kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
  }
}

template <class V>
HD inline V floor(V x) {
  if constexpr (ScalarValue<V>)
    return std::floor(x);
  else
    return per_lane(x, [](float v) { return __builtin_floorf(v); });
}
template <class V>
HD inline V ceil(V x) {
  if constexpr (ScalarValue<V>)
    return std::ceil(x);
  else
    return per_lane(x, [](float v) { return __builtin_ceilf(v); });
}
template <class V>
HD inline V sqrt(V x) {
  if constexpr (ScalarValue<V>)
    return std::sqrt(x);
  else
    return per_lane(x, [](float v) { return __builtin_sqrtf(v); });
}
template <class V>
HD inline V rsqrt(V x) {
  return splat<V>(1) / sqrt(x);
}

/// e^x. Vectors: Cody-Waite reduction by ln 2 and a degree-6 polynomial, 2 ulp; underflows to 0 below -87.3.
template <class V>
HD inline V exp(V x) {
  if constexpr (ScalarValue<V>) {
    return std::exp(x);
  } else {
    using Bits = typename VecTraits<V>::Bits;
    const V lowest = splat<V>(-87.33654f), highest = splat<V>(88.72283f);
    const V magic = splat<V>(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const V clamped = min(max(x, lowest), highest);
    const V shifted = clamped * splat<V>(1.44269504f) + magic;
    const V n = shifted - magic;
    V r = clamped - n * splat<V>(0.693359375f);
    r = r - n * splat<V>(-2.12194440e-4f);
    V p = splat<V>(1.9875691500e-4f);
    p = p * r + splat<V>(1.3981999507e-3f);
    p = p * r + splat<V>(8.3334519073e-3f);
    p = p * r + splat<V>(4.1665795894e-2f);
    p = p * r + splat<V>(1.6666665459e-1f);
    p = p * r + splat<V>(5.0000001201e-1f);
    p = p * r * r + r + splat<V>(1.0f);
    // n is added to the exponent of p: the result is a normal number for every clamped x.
    V y = reinterpret_cast<V>(reinterpret_cast<Bits>(p) + (reinterpret_cast<Bits>(shifted) << 23));
    y = select<V>(x < lowest, splat<V>(0.0f), y);
    y = select<V>(x > highest, splat<V>(INFINITY), y);
    return select<V>(x != x, x, y);
  }
}

template <class V>
HD inline V log(V x) {
  if constexpr (ScalarValue<V>)
    return std::log(x);
  else
    return per_lane(x, [](float v) { return std::log(v); });
}
template <class V>
HD inline V sin(V x) {
  if constexpr (ScalarValue<V>)
    return std::sin(x);
  else
    return per_lane(x, [](float v) { return std::sin(v); });
}
template <class V>
HD inline V cos(V x) {
  if constexpr (ScalarValue<V>)
    return std::cos(x);
  else
    return per_lane(x, [](float v) { return std::cos(v); });
}
template <class V>
HD inline V pow(V x, V y) {
  if constexpr (ScalarValue<V>) {
    return std::pow(x, y);
  } else {
    for (int i = 0; i < VecTraits<V>::kLanes; ++i) x[i] = std::pow(x[i], y[i]);
    return x;
  }
}

template <class V>
HD inline V fmod(V x, V y) {
  if constexpr (ScalarValue<V>) {
    return std::fmod(x, y);
  } else {
    for (int i = 0; i < VecTraits<V>::kLanes; ++i) x[i] = std::fmod(x[i], y[i]);
    return x;
  }
}

template <class V>
HD inline V sigmoid(V x) {
  return splat<V>(1) / (splat<V>(1) + exp(-x));
}

/// tanh. Vectors: (1 - e) / (1 + e) with e = exp(-2|x|); near 0, where that cancels, an odd series.
template <class V>
HD inline V tanh(V x) {
  if constexpr (ScalarValue<V>) {
    return std::tanh(x);
  } else {
    const V a = abs(x), e = exp(a * splat<V>(-2.0f)), s = x * x;
    const V big = (splat<V>(1.0f) - e) / (splat<V>(1.0f) + e);
    V p = splat<V>(-5.70498872745e-3f);
    p = p * s + splat<V>(2.06390887954e-2f);
    p = p * s + splat<V>(-5.37397155531e-2f);
    p = p * s + splat<V>(1.33314422036e-1f);
    p = p * s + splat<V>(-3.33332819422e-1f);
    const V small = x + x * s * p;
    const V y = select<V>(a < splat<V>(0.625f), small, select<V>(x < splat<V>(0.0f), -big, big));
    return select<V>(x != x, x, y);
  }
}

/// Error function. Vectors: x P(x^2) below 0.9, otherwise 1 - e^(-a Q(a)) with a = |x|; 2e-7. (Our own minimax fits.)
template <class V>
HD inline V erf(V x) {
  if constexpr (ScalarValue<V>) {
    return std::erf(x);
  } else {
    const V magnitude = abs(x), a = min(magnitude, splat<V>(4.0f)), s = a * a;
    V p = splat<V>(-6.11129398e-4f);
    p = p * s + splat<V>(5.01622876e-3f);
    p = p * s + splat<V>(-2.67819572e-2f);
    p = p * s + splat<V>(1.12822300e-1f);
    p = p * s + splat<V>(-3.76125324e-1f);
    p = p * s + splat<V>(1.12837916f);
    V q = splat<V>(-2.14153794e-4f);
    q = q * a + splat<V>(3.21645105e-3f);
    q = q * a + splat<V>(-2.28951238e-2f);
    q = q * a + splat<V>(1.05270504e-1f);
    q = q * a + splat<V>(6.35711248e-1f);
    q = q * a + splat<V>(1.12851660f);
    const V big = splat<V>(1.0f) - exp(-(a * q));
    const V y = select<V>(a < splat<V>(0.9f), x * p, select<V>(x < splat<V>(0.0f), -big, big));
    return select<V>(x != x, x, y);
  }
}

/// Distribution function of the standard normal, erfc(-x / sqrt 2) / 2. Vectors: erfc(a) = e^(-a Q(a)), our own minimax
/// fit to 7e-8, which keeps falling to 0 beyond its range.
template <class V>
HD inline V normal_cdf(V x) {
  if constexpr (ScalarValue<V>) {
    return std::erfc(x * splat<V>(-0.70710678118654752)) / 2;
  } else {
    const V a = min(abs(x), splat<V>(16.0f)) * splat<V>(0.707106781f);
    V q = splat<V>(1.26110528e-5f);
    q = q * a + splat<V>(-1.53003196e-4f);
    q = q * a + splat<V>(5.34859818e-4f);
    q = q * a + splat<V>(1.32184499e-3f);
    q = q * a + splat<V>(-2.02321762e-2f);
    q = q * a + splat<V>(1.03191925e-1f);
    q = q * a + splat<V>(6.36546263e-1f);
    q = q * a + splat<V>(1.12838336f);
    const V tail = splat<V>(0.5f) * exp(-(a * q));
    const V y = select<V>(x < splat<V>(0.0f), tail, splat<V>(1.0f) - tail);
    return select<V>(x != x, x, y);
  }
}

}  // namespace tenon::hd
#endif
