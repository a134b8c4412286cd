// Gradients against PyTorch's autograd: what the expressions mean, in fp64, and what plans of them compute on every
// device.
#include <gtest/gtest.h>

#include "tenon/expr/ops.h"
#include "tenon/expr/oracle.h"
#include "tenon/runtime/executable.h"
#include "tenon/runtime/host_weights.h"
#include "tests/gradients/cases.h"
#include "tests/planned/devices.h"
#include "tests/support/close.h"

namespace tenon::gradient_cases {
namespace {

constexpr double kOfMeaning = 1e-7;  // nine digits were recorded
// f32 sums of up to 151,936 terms: some 400 roundings' worth, by the size of what is added up.
constexpr double kOfDevices = 1e-4;

// Every `stride`-th value of what was recorded for this result.
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
