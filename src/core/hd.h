// The maths that node bodies may use, for every element type a body is instantiated with: double (the oracle), float,
// and GCC vector types of float (the CPU's tape interpreter). Device compilers get the same names for float.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#define HD

namespace tenon::hd {

template <class V>
concept ScalarValue = std::is_floating_point_v<V>;

// Width and companions of a GCC vector of float.
template <class V>
struct VecTraits {
  static constexpr int kLanes = sizeof(V) / sizeof(float);
  typedef int32_t Int __attribute__((vector_size(sizeof(V))));
};

/// The plain number type behind V: double for double, float for float and vectors of float.
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

/// All lanes equal to s.
template <class V>
inline V splat(Scalar<V> s) {
  if constexpr (ScalarValue<V>)
    return s;
  else
    return V{} + s;
}

template <class V, class M>
inline V select(M mask, V a, V b) {
  return mask ? a : b;
}

// Lane by lane through the scalar library: exact, for functions that no hot path uses.
template <class V, class F>
inline V per_lane(V x, F f) {
  for (int i = 0; i < VecTraits<V>::kLanes; ++i) x[i] = f(x[i]);
  return x;
}

template <class V> inline V abs(V x) { return select<V>(x < splat<V>(0), -x, x); }
template <class V> inline V min(V a, V b) { return select<V>(a < b, a, b); }
template <class V> inline V max(V a, V b) { return select<V>(a > b, a, b); }

template <class V>
inline V floor(V x) {
  if constexpr (ScalarValue<V>) return std::floor(x);
  else return per_lane(x, [](float v) { return __builtin_floorf(v); });
}
template <class V>
inline V ceil(V x) {
  if constexpr (ScalarValue<V>) return std::ceil(x);
  else return per_lane(x, [](float v) { return __builtin_ceilf(v); });
}
template <class V>
inline V sqrt(V x) {
  if constexpr (ScalarValue<V>) return std::sqrt(x);
  else return per_lane(x, [](float v) { return __builtin_sqrtf(v); });
}
template <class V> inline V rsqrt(V x) { return splat<V>(1) / sqrt(x); }

/// e^x. Vectors: Cody-Waite reduction by ln 2 and a degree-6 polynomial, 2 ulp; underflows to 0 below -87.3.
template <class V>
inline V exp(V x) {
  if constexpr (ScalarValue<V>) {
    return std::exp(x);
  } else {
    using I = typename VecTraits<V>::Int;
    const V magic = splat<V>(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const V clamped = min(max(x, splat<V>(-87.33654f)), splat<V>(88.72283f));
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
    // Two factors of 2^(n/2), so that n = 128 and n = -126 stay in range.
    const I whole = __builtin_convertvector(n, I);
    const I half = whole >> 1;
    const I one = (half + 127) << 23, two = (whole - half + 127) << 23;
    V y = p * reinterpret_cast<const V&>(one) * reinterpret_cast<const V&>(two);
    y = select<V>(x < splat<V>(-87.33654f), splat<V>(0.0f), y);
    y = select<V>(x > splat<V>(88.72283f), splat<V>(INFINITY), y);
    return select<V>(x != x, x, y);
  }
}

template <class V>
inline V log(V x) {
  if constexpr (ScalarValue<V>) return std::log(x);
  else return per_lane(x, [](float v) { return std::log(v); });
}
template <class V>
inline V sin(V x) {
  if constexpr (ScalarValue<V>) return std::sin(x);
  else return per_lane(x, [](float v) { return std::sin(v); });
}
template <class V>
inline V cos(V x) {
  if constexpr (ScalarValue<V>) return std::cos(x);
  else return per_lane(x, [](float v) { return std::cos(v); });
}
template <class V>
inline V pow(V x, V y) {
  if constexpr (ScalarValue<V>) {
    return std::pow(x, y);
  } else {
    for (int i = 0; i < VecTraits<V>::kLanes; ++i) x[i] = std::pow(x[i], y[i]);
    return x;
  }
}

template <class V> inline V sigmoid(V x) { return splat<V>(1) / (splat<V>(1) + exp(-x)); }

/// tanh. Vectors: (1 - e) / (1 + e) with e = exp(-2|x|), and an odd series near 0 where that cancels.
template <class V>
inline V tanh(V x) {
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

/// Error function. Vectors: Maclaurin series below 1, 1 - erfc by Abramowitz & Stegun 7.1.26 style fit above; 3e-7.
template <class V>
inline V erf(V x) {
  if constexpr (ScalarValue<V>) {
    return std::erf(x);
  } else {
    const V a = abs(x), s = x * x;
    // |x| < 1: x * P(x^2), Taylor coefficients 2/sqrt(pi) * (-1)^n / (n! (2n+1)) to x^15.
    V p = splat<V>(-1.4925650e-5f * 1.0f);
    p = p * s + splat<V>(1.2055333e-4f);
    p = p * s + splat<V>(-8.5483270e-4f);
    p = p * s + splat<V>(5.2239776e-3f);
    p = p * s + splat<V>(-2.6866170e-2f);
    p = p * s + splat<V>(1.1283792e-1f);
    p = p * s + splat<V>(-3.7612638e-1f);
    p = p * s + splat<V>(1.1283792f);
    const V small = x * p;
    // |x| >= 1: 1 - t * Q(t) * exp(-x^2), t = 1 / (1 + 0.3275911 |x|)
    const V t = splat<V>(1.0f) / (splat<V>(1.0f) + splat<V>(0.3275911f) * a);
    V q = splat<V>(1.061405429f);
    q = q * t + splat<V>(-1.453152027f);
    q = q * t + splat<V>(1.421413741f);
    q = q * t + splat<V>(-0.284496736f);
    q = q * t + splat<V>(0.254829592f);
    const V big = splat<V>(1.0f) - q * t * exp(-s);
    const V y = select<V>(a < splat<V>(1.0f), small, select<V>(x < splat<V>(0.0f), -big, big));
    return select<V>(x != x, x, y);
  }
}

}  // namespace tenon::hd
