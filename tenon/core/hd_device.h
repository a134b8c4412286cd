// The maths of hd.h for kernels: the same names, for float only. hd.h includes it if TENON_DEVICE is defined, by a
// device compiler or by a host compiler in its place.
#pragma once
#ifndef __CUDACC__
#include <cmath>
#endif

#ifdef __CUDACC__
#define HD __device__ __attribute__((always_inline))
#ifndef INFINITY
#define INFINITY __builtin_bit_cast(float, 0x7f800000u)
#endif
#else
#define HD [[gnu::always_inline]]
#endif

namespace tenon::hd {

template <class V>
using Scalar = float;

template <class V>
HD inline V splat(float s) {
  return s;
}
template <class V>
HD inline V select(bool mask, V a, V b) {
  return mask ? a : b;
}
template <class V>
HD inline V abs(V x) {
  return fabsf(x);
}
template <class V>
HD inline V min(V a, V b) {
  return a < b ? a : b;
}
template <class V>
HD inline V max(V a, V b) {
  return a > b ? a : b;
}
template <class V>
HD inline V fma(V a, V b, V c) {
  return fmaf(a, b, c);
}
template <class V>
HD inline V floor(V x) {
  return floorf(x);
}
template <class V>
HD inline V ceil(V x) {
  return ceilf(x);
}
template <class V>
HD inline V sqrt(V x) {
  return sqrtf(x);
}
template <class V>
HD inline V rsqrt(V x) {
  return 1.0f / sqrtf(x);
}
/// e^x by the special-function unit: 2^(x log2 e), about 2 ulp plus the rounding of the product.
template <class V>
HD inline V exp(V x) {
#ifdef __CUDACC__
  return __expf(x);
#else
  return expf(x);
#endif
}
template <class V>
HD inline V log(V x) {
  return logf(x);
}
template <class V>
HD inline V sin(V x) {
  return sinf(x);
}
template <class V>
HD inline V cos(V x) {
  return cosf(x);
}
template <class V>
HD inline V pow(V x, V y) {
  return powf(x, y);
}
template <class V>
HD inline V fmod(V x, V y) {
  return fmodf(x, y);
}
template <class V>
HD inline V sigmoid(V x) {
#ifdef __CUDACC__
  return __fdividef(1.0f, 1.0f + __expf(-x));
#else
  return 1.0f / (1.0f + expf(-x));
#endif
}
template <class V>
HD inline V tanh(V x) {
  return tanhf(x);
}
template <class V>
HD inline V erf(V x) {
  return erff(x);
}
/// Distribution function of the standard normal, erfc(-x / sqrt 2) / 2, by hd.h's fit for vectors, as a power of 2
/// whose coefficients contain log2 e and the powers of sqrt 1/2. It takes a fraction of erfcf's instructions, which
/// dominate the cost of GELU after a product. Tails below 2^-126 are 0.
template <class V>
HD inline V normal_cdf(V x) {
  const float a = fabsf(x);
  float q = 1.13711896e-6f;
  q = q * a - 1.95105745e-5f;
  q = q * a + 9.64549509e-5f;
  q = q * a + 3.37116554e-4f;
  q = q * a - 7.29721507e-3f;
  q = q * a + 5.26350766e-2f;
  q = q * a + 4.59171068e-1f;
  q = q * a + 1.15110838f;
  const float exponent = -1.0f - q * a;
#ifdef __CUDACC__
  float tail;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(tail) : "f"(exponent));
#else
  const float tail = exp2f(exponent);
#endif
  return x < 0.0f ? tail : 1.0f - tail;
}

}  // namespace tenon::hd
