// Gradients against PyTorch's autograd: the expressions in fp64, and their plans on every device.
#include <gtest/gtest.h>

#include "tenon/expr/ops.h"
#include "tenon/expr/vjp.h"
#include "tenon/oracle/oracle.h"
#include "tenon/runtime/executable.h"
#include "tests/gradients/cases.h"
#include "tests/planned/devices.h"
#include "tests/support/close.h"

namespace tenon::gradient_cases {
namespace {

constexpr double kOfMeaning = 1e-7;  // nine digits were recorded
// f32 sums of up to 151,936 terms: about 400 roundings, relative to the magnitude of the terms.
constexpr double kOfDevices = 1e-4;

// Every `stride`-th value recorded for this result.
template <class Values>
testing::AssertionResult as_recorded(const Case& c, const Result& r, const Values& got, double tolerance) {
  const nlohmann::json& want = c.expect.at(r.name.starts_with("d.") ? r.name.substr(2) : r.name);
  if (Shape(want.at("shape").get<std::vector<int64_t>>()) != r.value.shape())
    return testing::AssertionFailure() << "the shape is " << r.value.shape().str();
  return close_to_largest(every(got, want.at("stride").get<size_t>()), want.at("values").get<std::vector<double>>(),
                          tolerance);
}

// Results of a plan on a device, by name.
std::map<std::string, std::vector<float>> run(const Case& c, const Plan& plan, const planned::Device& device) {
  HostWeights weights;
  for (const auto& [name, t] : c.tensors) weights.add(name, {t.dtype, t.shape, t.data.data()});
  Executable executable(plan, device.backend, weights);
  for (const Buffer& b : plan.buffers)
    if (b.role == BufferRole::Input) executable.set(b.name, weights.find(b.name));
  executable.run_all();
  std::map<std::string, std::vector<float>> out;
  for (const Result& r : c.results) out[r.name] = executable.get(r.name);
  return out;
}

TEST(Autograd, WhatGradientsMean) {
  int compared = 0;
  for (const Case& c : all_cases()) {
    Oracle oracle(c.tensors);
    for (const Result& r : c.results) {
      EXPECT_TRUE(as_recorded(c, r, oracle.eval(r.value), kOfMeaning)) << c.name << ": " << r.name;
      ++compared;
    }
    EXPECT_EQ(c.results.size(), c.expect.size()) << c.name;
  }
  EXPECT_GE(compared, 30);
}

// Of adjacent slices: one tensor, and sums of its parts; none with zeros.
TEST(Autograd, SlicesSideBySide) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {5, 3, 10}), b = input(g, "b", DType::F32, {10}), y = x + b;
  const auto part = [&](int64_t begin, int64_t end) { return slice(y, -1, begin, end); };
  const Expr loss = sum(reshape(
      concat(std::array{sin(part(0, 4)), exp(part(4, 6)) * part(4, 6), part(6, 10) * part(6, 10)}, -1), {1, 150}));
  const std::vector<Expr> got = tenon::gradients(reshape(loss, {}), {}, std::array{x, b});
  for (const Expr& e : topological(got)) EXPECT_FALSE(e.is<nodes::Pad>());
  std::map<std::string, HostTensor> tensors;
  std::vector<float> values(150), bias(10);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) * 0.1F - 0.8F;
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = 0.05F * static_cast<float>(i);
  tensors.emplace("x", HostTensor::from(DType::F32, x.shape(), values));
  tensors.emplace("b", HostTensor::from(DType::F32, b.shape(), bias));
  std::vector<double> of_x, of_b(10);
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = static_cast<double>(values[i]) + static_cast<double>(bias[i % 10]);
    of_x.push_back(i % 10 < 4 ? std::cos(v) : i % 10 < 6 ? std::exp(v) * (v + 1) : 2 * v);
    of_b[i % 10] += of_x.back();
  }
  Oracle oracle(tensors);
  EXPECT_TRUE(close_to_largest(oracle.eval(got[0]), of_x, 1e-12));
  EXPECT_TRUE(close_to_largest(oracle.eval(got[1]), of_b, 1e-12));
}

// A gradient that reaches one of them only through views keeps its own type.
TEST(Autograd, SlicesSideBySideOfSeveralTypes) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {2, 4}), seed = input(g, "seed", DType::BF16, {2, 2});
  const Expr y = slice(x, -1, 0, 2) + slice(x, -1, 2, 4) * 3.0;
  const std::vector<Expr> got = tenon::gradients(y, seed, std::array{x});
  std::map<std::string, HostTensor> tensors;
  tensors.emplace("seed", HostTensor::from(DType::BF16, seed.shape(), std::vector<float>{1, 2, 3, 4}));
  Oracle oracle(tensors);
  EXPECT_TRUE(close_to_largest(oracle.eval(got[0]), std::vector<double>{1, 2, 3, 6, 3, 4, 9, 12}, 1e-12));
}

class AutogradOnDevices : public testing::TestWithParam<const char*> {};

TEST_P(AutogradOnDevices, AgreesEverywhere) {
  for (const Case& c : all_cases()) {
    if (!c.name.starts_with(GetParam())) continue;
    const Plan plan = make_plan(c.results);
    for (const planned::Device& device : planned::devices())
      for (const auto& [name, values] : run(c, plan, device)) {
        const auto it = std::ranges::find(c.results, name, &Result::name);
        EXPECT_TRUE(as_recorded(c, *it, values, kOfDevices)) << device.name << ", " << c.name << ": " << name;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AutogradOnDevices,
                         testing::Values("gather", "conv2d", "attention", "cross", "transformer"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace tenon::gradient_cases
