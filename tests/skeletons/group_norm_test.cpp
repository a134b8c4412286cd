// Group norm of values far from 0, in whole plans: within the error of a two-pass algorithm in f32, for any mean, any
// number of pixels and every way in which statistics leave a launch.
#include <cmath>
#include <random>

#include "tenon/nn/diffusion.h"
#include "tenon/nn/norm.h"
#include "tenon/plan/plan.h"
#include "tests/skeletons/harness.h"

namespace tenon::launches {
namespace {

constexpr double kFar[] = {0, 1, 10, 100, 1e3, 1e4, 1e5};  // mean / deviation

class GroupNorms : public LaunchTest {
 protected:
  /// Normally distributed numbers with deviation 1 around `mean`, each channel around its own mean nearby.
  Expr far(const std::string& name, DType t, const Shape& shape, double mean) {
    std::mt19937 gen(static_cast<unsigned>(shape.numel()));
    std::normal_distribution<double> normal;
    std::vector<double> channels(static_cast<size_t>(shape[-1])), values(static_cast<size_t>(shape.numel()));
    for (double& c : channels) c = mean + 0.3 * normal(gen);
    for (size_t i = 0; i < values.size(); ++i) values[i] = channels[i % channels.size()] + normal(gen);
    tensors.insert_or_assign(name, HostTensor::from(t, shape, values));
    return input(g, name, t, shape);
  }
  /// group_norm(x), and its components.
  struct Normed {
    Expr x, y;
    int64_t groups;
  };
  Normed normed(const std::string& id, const Expr& x, int64_t groups) {
    const Shape channels{x.shape()[-1]};
    tensors.insert_or_assign(id + ".gamma", random_tensor(DType::F32, channels, 3, 0.2));
    tensors.insert_or_assign(id + ".beta", random_tensor(DType::F32, channels, 4, 0.1));
    const Expr gamma = param(g, id + ".gamma", DType::F32, channels),
               beta = param(g, id + ".beta", DType::F32, channels);
    return {x, nn::group_norm(x, {groups, 1e-5}, gamma + 1.0, beta), groups};
  }
  /// Plans it for every runner; returns results by runner.
  std::vector<std::pair<std::string, std::vector<double>>> results(const Expr& y) {
    const Plan plan = make_plan(std::array{Result{"y", y}});
    std::vector<std::pair<std::string, std::vector<double>>> out;
    for (const Runner& runner : runners()) {
      Tensors known = tensors;
      for (const Phase& p : plan.phases)
        for (const Launch& l : p.launches)
          for (auto& [name, t] : runner.run(l, known)) known.insert_or_assign(name, std::move(t));
      out.emplace_back(runner.name, known.at("y").values());
    }
    return out;
  }
  /// Bounds on x * scale + shift with mean and variance in f32 from two passes with pairwise sums: a few roundings
  /// relative to x * scale, and log2 n relative to the result.
  void expect_two_passes(const Normed& n) {
    Oracle oracle(tensors);
    const std::vector<double> x = oracle.eval(n.x), want = oracle.eval(n.y);
    const Shape& s = n.x.shape();
    const int64_t channels = s[-1], width = channels / n.groups, sample = s.numel() / s[0];
    const double u = unit_roundoff(DType::F32), levels = 8 + std::log2(static_cast<double>(sample / n.groups));
    const auto found = results(n.y);
    for (int64_t group = 0; group < s[0] * n.groups; ++group) {
      std::vector<size_t> of_group;
      for (int64_t i = 0; i < sample / channels; ++i)
        for (int64_t c = 0; c < width; ++c)
          of_group.push_back(
              static_cast<size_t>(group / n.groups * sample + i * channels + group % n.groups * width + c));
      double mean = 0, variance = 0;
      for (size_t i : of_group) mean += x[i] / static_cast<double>(of_group.size());
      for (size_t i : of_group) variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(of_group.size());
      const double largest = 2 / std::sqrt(variance + 1e-5);  // |gamma + 1| < 2
      for (const auto& [runner, got] : found)
        for (size_t i : of_group) {
          const double bound = u * (4 * std::abs(mean) * largest + levels * (std::abs(want[i]) + 1));
          ASSERT_LE(std::abs(got[i] - want[i]), bound)
              << runner << " " << s.str() << " element " << i << ": " << got[i] << ", not " << want[i];
        }
    }
  }
};

TEST_F(GroupNorms, FarFromZero) {
  for (const auto& [shape, groups] : {std::pair<Shape, int64_t>{{2, 16, 16, 320}, 32},
                                      {{1, 8, 8, 1280}, 32},
                                      {{1, 64, 64, 32}, 4},
                                      {{2, 13, 17, 40}, 8},
                                      {{1, 5, 7, 30}, 5},
                                      {{3, 1, 2, 64}, 16},
                                      {{2, 1, 1, 12}, 3}})
    for (double mean : kFar) {
      SCOPED_TRACE(mean);
      expect_two_passes(normed("n", far("x", DType::F32, shape, mean), groups));
    }
}

TEST_F(GroupNorms, OfJoinedChannels) {
  for (double mean : kFar) {
    SCOPED_TRACE(mean);
    const Expr x =
        concat({far("a", DType::F32, {2, 9, 11, 40}, mean), far("b", DType::F32, {2, 9, 11, 24}, -mean)}, -1);
    expect_two_passes(normed("n", x, 8));
  }
}

// 16-bit values, exact in f32, as far from 0 as their precision allows.
TEST_F(GroupNorms, OfSmallTypes) {
  for (DType t : {DType::F16, DType::BF16})
    for (double mean : {0.0, 10.0, 100.0}) {
      SCOPED_TRACE(mean);
      expect_two_passes(normed("n", far("x", t, {2, 12, 20, 64}, mean), 8));
    }
}

// One element holds all of the deviation, in any position: a reference value may be far from all others.
TEST_F(GroupNorms, OfOneThatStandsOut) {
  for (int64_t where : {0, 31, 700, 2047}) {
    SCOPED_TRACE(where);
    std::vector<double> values(2048 * 8, 1000);
    values[static_cast<size_t>(where * 8 + 5)] = 1e6;
    tensors.insert_or_assign("x", HostTensor::from(DType::F32, {1, 32, 64, 8}, values));
    expect_two_passes(normed("n", input(g, "x", DType::F32, {1, 32, 64, 8}), 2));
  }
}

// Numbers around 100 with a 0 among them: deviations from it would lose the others' precision.
TEST_F(GroupNorms, OfOneThatStandsOutOfOthersThatDeviate) {
  for (int64_t where : {0, 8, 255}) {
    SCOPED_TRACE(where);
    far("x", DType::F32, {1, 16, 16, 32}, 100);
    std::vector<double> values = tensors.at("x").values();
    values[static_cast<size_t>(where * 32)] = 0;
    tensors.insert_or_assign("x", HostTensor::from(DType::F32, {1, 16, 16, 32}, values));
    expect_two_passes(normed("n", input(g, "x", DType::F32, {1, 16, 16, 32}), 8));
  }
}

TEST_F(GroupNorms, OfAConstantIsItsShift) {
  for (double value : {0.1, 1e3, 1e5}) {
    tensors.insert_or_assign("x", HostTensor::from(DType::F32, {1, 16, 16, 40}, std::vector<double>(256 * 40, value)));
    const Normed n = normed("n", input(g, "x", DType::F32, {1, 16, 16, 40}), 4);
    const std::vector<double> want = Oracle(tensors).eval(n.y);
    for (const auto& [runner, got] : results(n.y))
      for (size_t i = 0; i < got.size(); ++i)  // what remains is the rounding of value / sqrt(eps)
        ASSERT_LE(std::abs(got[i] - want[i]), 1e-6 + 2 * unit_roundoff(DType::F32) * 2 * value / std::sqrt(1e-5))
            << runner;
  }
}

// After a convolution and a product, whose launches count statistics of what they store.
TEST_F(GroupNorms, BehindAnAnchor) {
  for (DType t : {DType::F32, DType::F16})
    for (double mean : {0.0, 100.0, 1e3}) {
      SCOPED_TRACE(mean);
      const std::string id = numbered(std::string(name_of(t)), static_cast<int64_t>(mean));
      const Expr x = input(g, id, t, {2, 16, 16, 64}), w = weight("w", t, {64, 64, 3, 3}), v = weight("v", t, {96, 64});
      tensors.insert_or_assign(id, random_tensor(t, x.shape(), 9));
      for (const Expr& y : {conv2d(x, w, 1, {1, 1, 1, 1}), linear(reshape(x, {2, 256, 64}), v)}) {
        const Expr stored = cast(y + mean, t);
        // Against the values that the plan stores: operations before these may round in any way.
        const Plan plan = make_plan(std::array{Result{"stored", stored}, Result{"y", normed("n", stored, 8).y}});
        for (const Runner& runner : runners()) {
          Tensors known = tensors;
          for (const Phase& p : plan.phases)
            for (const Launch& l : p.launches)
              for (auto& [name, out] : runner.run(l, known)) known.insert_or_assign(name, std::move(out));
          const std::vector<double> got = known.at("y").values();
          const Normed n = normed("n", input(g, "stored", t, stored.shape()), 8);
          const std::vector<double> want = Oracle(known).eval(n.y);
          for (size_t i = 0; i < got.size(); ++i)
            ASSERT_LE(std::abs(got[i] - want[i]),
                      unit_roundoff(DType::F32) * (8 * (mean + 1) + 20 * (std::abs(want[i]) + 1)))
                << runner.name << " element " << i;
        }
      }
    }
}

}  // namespace
}  // namespace tenon::launches
