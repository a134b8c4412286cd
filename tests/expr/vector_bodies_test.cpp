// Every pointwise body, instantiated with float and with vectors of 8 and 16 floats, against itself in fp64: over the
// whole range of floats, with infinities, NaN and denormals, on every instruction set of this machine.
#include <gtest/gtest.h>

#include <cfloat>
#include <cstring>
#include <random>

#include "tenon/expr/ops.h"
#include "tests/support/close.h"

namespace tenon {
namespace {

typedef float Vec8 __attribute__((vector_size(32)));
typedef float Vec16 __attribute__((vector_size(64)));

constexpr float kParams[] = {-0.75f, 1.25f};

// One call of a body for as many elements as V has lanes. Passed through memory, so that no vector crosses a function
// boundary.
template <class T, class V>
HD inline void run_body(const float* const* in, float* out) {
  V x[T::kArity], y;
  for (int k = 0; k < T::kArity; ++k) std::memcpy(&x[k], in[k], sizeof(V));
  y = detail::call_eval<T, V>(x, kParams);
  std::memcpy(out, &y, sizeof(V));
}

template <class T>
struct Runner {
  using Run = void (*)(const float* const* in, float* out);
  const char* name;
  int lanes;
  Run run;
};

template <class T>
void run_float(const float* const* in, float* out) {
  run_body<T, float>(in, out);
}
template <class T>
void run_8(const float* const* in, float* out) {
  run_body<T, Vec8>(in, out);
}
template <class T>
void run_16(const float* const* in, float* out) {
  run_body<T, Vec16>(in, out);
}
#if defined(__x86_64__)
template <class T>
__attribute__((target("avx2,fma"))) void run_avx2(const float* const* in, float* out) {
  run_body<T, Vec8>(in, out);
}
template <class T>
__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma"))) void run_avx512(const float* const* in,
                                                                                       float* out) {
  run_body<T, Vec16>(in, out);
}
#endif

template <class T>
std::vector<Runner<T>> runners() {
  std::vector<Runner<T>> all = {
      {"float", 1, &run_float<T>}, {"vector of 8", 8, &run_8<T>}, {"vector of 16", 16, &run_16<T>}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back({"AVX2", 8, &run_avx2<T>});
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    all.push_back({"AVX-512", 16, &run_avx512<T>});
#endif
  return all;
}

// The operands of one element: all values for one operand, a seeded mixture for several.
std::vector<float> test_values() {
  std::vector<float> v = {0.0f,     -0.0f,      1.0f,       -1.0f,      INFINITY,   -INFINITY,   NAN,       FLT_MIN,
                          -FLT_MIN, FLT_MAX,    -FLT_MAX,   1e-45f,     -1e-45f,    1e-40f,      88.72283f, 88.72284f,
                          88.8f,    -87.33654f, -87.33655f, -103.9f,    0.5f,       2.5f,        -2.5f,     0.625f,
                          0.9f,     -0.9f,      4.0f,       8388607.5f, 8388608.0f, -8388607.5f, 3e9f,      -3e9f};
  for (uint32_t bits = 0; bits < 0xfff00000u; bits += 0x000a1b37u) v.push_back(std::bit_cast<float>(bits));
  for (float x = -30; x < 30; x += 1.0f / 512) v.push_back(x * 1.0001f);
  for (float x = -100; x < 100; x += 1.0f / 64) v.push_back(x * 1.0001f);
  while (v.size() % 16) v.push_back(0);
  return v;
}

template <class T>
std::vector<std::vector<float>> operands() {
  const std::vector<float> base = test_values();
  std::vector<std::vector<float>> in(T::kArity, base);
  std::mt19937 random(7);
  for (size_t k = 1; k < in.size(); ++k)
    for (float& x : in[k]) {
      x = base[random() % base.size()];
      if (random() % 2) x = std::fmod(x, 30.0f);
    }
  return in;
}

// The magnitude that an error is relative to: the result, or what the body necessarily rounds on the way to it.
double error_scale(std::string_view name, const double* x, double result) {
  const double r = std::abs(result);
  if (name == "lerp") return std::max({r, std::abs(x[0]), std::abs(x[2] * x[0]), std::abs(x[2] * x[1])});
  // The argument of the exponential is itself rounded: in the far tail the error is small relative to x, not to x *
  // tail.
  if (name.find("gelu") != name.npos || name == "erf") return std::max(r, std::min(1.0, std::abs(x[0])));
  return r;
}

bool agrees(double want, double got, double scale) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  const double limit = FLT_MAX * (1 - 1e-6);
  if (std::abs(want) > limit) return std::copysign(1, want) == std::copysign(1, got) && std::abs(got) >= limit;
  // Denormal results may be flushed to 0.
  return std::abs(want - got) <= 4e-7 * scale + 1e-36;
}

template <class T>
void check_body() {
  const std::vector<std::vector<float>> in = operands<T>();
  for (const Runner<T>& runner : runners<T>()) {
    int wrong = 0;
    for (size_t i = 0; i < in[0].size() && wrong < 5; i += static_cast<size_t>(runner.lanes)) {
      const float* at[T::kArity];
      for (int k = 0; k < T::kArity; ++k) at[k] = in[static_cast<size_t>(k)].data() + i;
      float out[16];
      runner.run(at, out);
      for (int lane = 0; lane < runner.lanes; ++lane) {
        double x[T::kArity], p[] = {kParams[0], kParams[1]};
        bool moderate = true;
        for (int k = 0; k < T::kArity; ++k) {
          x[k] = at[k][lane];
          moderate = moderate && std::abs(x[k]) < 1e18;
        }
        // Three-operand arithmetic overflows in between where fp64 does not.
        if (T::name == std::string_view("lerp") && !moderate) continue;
        const double want = detail::call_eval<T, double>(x, p), got = out[lane];
        if (agrees(want, got, error_scale(T::name, x, want))) continue;
        ++wrong;
        ADD_FAILURE() << T::name << " as " << runner.name << " at x = " << x[0] << (T::kArity > 1 ? ", .." : "")
                      << ": got " << got << ", expected " << want << ", relative error "
                      << std::abs(got - want) / std::abs(want);
      }
    }
  }
}

TEST(VectorBodies, AgreeWithDouble) {
  int checked = 0;
  AllNodes::for_each([&]<class T>() {
    if constexpr (T::family == Family::Pointwise) {
      check_body<T>();
      ++checked;
    }
  });
  EXPECT_GE(checked, 30);
}

// Relative accuracy of the functions that kernels spend most time in; tighter than above where possible.
template <class T>
void expect_accurate(float low, float high, double relative) {
  std::vector<double> got, want;
  for (float x = low; x < high; x += (high - low) / 200000) {
    const float* in = &x;
    float block[16], out[16];
    std::fill_n(block, 16, x);
    in = block;
    run_16<T>(&in, out);
    const double wide = x;
    got.push_back(out[0]);
    want.push_back(detail::call_eval<T, double>(&wide, nullptr));
  }
  EXPECT_TRUE(close(got, want, Tolerance{FLT_MIN, relative})) << T::name;
}

TEST(VectorBodies, HotFunctionsAreAccurate) {
  expect_accurate<nodes::Exp>(-87, 88, 2e-7);
  expect_accurate<nodes::Sigmoid>(-80, 20, 3e-7);
  expect_accurate<nodes::Silu>(-80, 20, 3e-7);
  expect_accurate<nodes::Tanh>(-10, 10, 3e-7);
  expect_accurate<nodes::Erf>(-5, 5, 3e-7);
  expect_accurate<nodes::Gelu>(-1, 10, 4e-7);
}

TEST(VectorBodies, SignedZeroSurvives) {
  Vec8 zero = {-0.0f, 0.0f};
  const Vec8 low = hd::floor(zero), high = hd::ceil(Vec8{-0.5f});
  EXPECT_TRUE(std::signbit(low[0]));
  EXPECT_FALSE(std::signbit(low[1]));
  EXPECT_TRUE(std::signbit(high[0]));
  EXPECT_FALSE(std::signbit(hd::abs(zero)[0]));
  EXPECT_TRUE(std::signbit(hd::splat<Vec8>(-0.0f)[3]));
}

}  // namespace
}  // namespace tenon
