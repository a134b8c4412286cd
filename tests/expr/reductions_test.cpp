// Kernels reduce in pieces: partial results combine to the result of the whole, for every reduction, NaN included.
#include <gtest/gtest.h>

#include <random>

#include "tenon/expr/ops.h"
#include "tenon/oracle/oracle.h"

namespace tenon {
namespace {

typedef float Vec8 __attribute__((vector_size(32)));

template <class T, class V>
V join(V a, V b) {
  if constexpr (requires { T::template combine<V>(a, b); })
    return T::template combine<V>(a, b);
  else
    return T::template step<V>(a, b);
}

template <class T>
double whole(const std::vector<double>& x, size_t begin, size_t end) {
  double acc = T::init;
  for (size_t i = begin; i < end; ++i) acc = T::template step<double>(acc, x[i]);
  return acc;
}

template <class T>
void check_pieces(const std::vector<double>& x) {
  const double n = static_cast<double>(x.size()), want = T::template finish<double>(whole<T>(x, 0, x.size()), n);
  for (size_t cut = 0; cut <= x.size(); ++cut) {
    const double left = whole<T>(x, 0, cut), right = whole<T>(x, cut, x.size());
    const double got = T::template finish<double>(join<T, double>(left, right), n);
    EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : std::abs(got - want) <= 1e-13 * std::max(1.0, std::abs(want)))
        << T::name << " cut at " << cut << ": " << got << ", not " << want;
  }
  // Eight lanes in parallel, combined at the end, in f32.
  Vec8 acc = hd::splat<Vec8>(static_cast<float>(T::init));
  for (size_t i = 0; i + 8 <= x.size(); i += 8) {
    Vec8 v = {};
    for (size_t lane = 0; lane < 8; ++lane) v[lane] = static_cast<float>(x[i + lane]);
    acc = T::template step<Vec8>(acc, v);
  }
  float total = acc[0];
  for (int lane = 1; lane < 8; ++lane) total = join<T, float>(total, acc[lane]);
  const double got = T::template finish<float>(total, static_cast<float>(n));
  EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : std::abs(got - want) <= 1e-5 * std::max(1.0, std::abs(want)))
      << T::name << " in lanes: " << got << ", not " << want;
}

TEST(Reductions, PiecesJoinToTheWhole) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> number(-3, 3);
  AllNodes::for_each([&]<class T>() {
    if constexpr (requires { T::init; }) {
      std::vector<double> x(40);
      for (double& v : x) v = number(random);
      check_pieces<T>(x);
      x[17] = std::nan("");
      check_pieces<T>(x);
      for (double& v : x) v = -1 - std::abs(number(random));
      check_pieces<T>(x);
    }
  });
}

// Reductions derived from moments give the same as those of the elements.
TEST(Reductions, OfMoments) {
  std::mt19937 random(6);
  std::normal_distribution<double> number(30, 2);
  std::vector<double> x(37);
  for (double& v : x) v = number(random);
  const double n = static_cast<double>(x.size());
  double mean = 0, m2 = 0;
  for (double v : x) mean += v / n;
  for (double v : x) m2 += (v - mean) * (v - mean);
  int kinds = 0;
  for (const NodeType* t : node_types()) {
    if (!t->reduce_of_moments) continue;
    ++kinds;
    Graph g;
    const Expr itself = g.make(*t, std::array{input(g, "x", DType::F64, {37})}, {.ints = {0}});
    const double want = Oracle({{"x", HostTensor::from(DType::F64, {37}, x)}}).eval(itself)[0];
    EXPECT_LE(std::abs(t->reduce_of_moments(n, mean, m2) - want), 1e-12 * std::abs(want)) << t->name;
  }
  EXPECT_EQ(kinds, 4);  // sum, mean, sum of squares, variance
}

}  // namespace
}  // namespace tenon
