// Plans whose inputs and results are in the caller's memory, on the CPU and the emulated GPU: other addresses in every
// run, temporaries in the arena, and what is refused.
#include <gtest/gtest.h>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/core/error.h"
#include "tenon/explain/parse_plan.h"
#include "tenon/expr/ops.h"
#include "tenon/runtime/executable.h"
#include "tests/cuda/emulator.h"
#include "tests/support/close.h"

namespace tenon {
namespace {

constexpr int64_t kRows = 6, kColumns = 40;

// Two launches with a temporary between them: b = softmax(x w^T s).
Plan scores(Graph& g) {
  const Expr x = input(g, "x", DType::F32, {kRows, kColumns}), w = input(g, "w", DType::F32, {kRows, kColumns});
  const Expr y = linear(x, w) * scalar(g, "s");
  const Expr e = exp(y - reduce_max(y));
  const std::vector<Result> results{{"p", e / sum(e)}};
  PlanOptions options;
  options.outside = true;
  options.hoist = false;
  return make_plan(results, options);
}

std::vector<float> reference(const std::vector<float>& x, const std::vector<float>& w, double s) {
  std::vector<float> p(kRows * kRows);
  for (int64_t i = 0; i < kRows; ++i) {
    double total = 0;
    std::vector<double> e(kRows);
    for (int64_t j = 0; j < kRows; ++j) {
      double dot = 0;
      for (int64_t k = 0; k < kColumns; ++k)
        dot += double{x[static_cast<size_t>(i * kColumns + k)]} * w[static_cast<size_t>(j * kColumns + k)];
      total += e[static_cast<size_t>(j)] = std::exp(dot * s);
    }
    for (int64_t j = 0; j < kRows; ++j)
      p[static_cast<size_t>(i * kRows + j)] = static_cast<float>(e[static_cast<size_t>(j)] / total);
  }
  return p;
}

std::shared_ptr<Backend> backend_named(const std::string& name) {
  if (name == "cpu") return make_backend("cpu", {2});
  return cuda::make_cuda_backend(std::make_shared<cuda::test::Emulator>());
}

class CallerMemory : public testing::TestWithParam<std::string> {
 protected:
  // A device tensor with f32 values.
  std::shared_ptr<void> tensor(const std::vector<float>& values) {
    std::shared_ptr<void> memory = backend_->allocate(static_cast<int64_t>(values.size() * sizeof(float)));
    backend_->copy_in(*stream_, memory.get(), values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
    return memory;
  }
  std::vector<float> values_of(const std::shared_ptr<void>& memory, size_t count) {
    std::vector<float> values(count);
    backend_->copy_out(*stream_, values.data(), memory.get(), static_cast<int64_t>(count * sizeof(float)));
    return values;
  }
  static std::vector<float> wave(int64_t count, float step) {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * step) * 0.5f;
    return values;
  }

  std::shared_ptr<Backend> backend_ = backend_named(GetParam());
  std::shared_ptr<Stream> stream_ = backend_->make_stream();
  Graph g_;
  Plan plan_ = scores(g_);
};

TEST_P(CallerMemory, AddressesChangeFromRunToRun) {
  std::optional<Executable> executable;
  for (int run = 0; run < 4; ++run) {
    const std::vector<float> x = wave(kRows * kColumns, 0.1f + 0.05f * static_cast<float>(run)),
                             w = wave(kRows * kColumns, 0.3f);
    const std::shared_ptr<void> x_at = tensor(x), w_at = tensor(w),
                                p_at = tensor(std::vector<float>(kRows * kRows, NAN));
    const std::map<std::string, void*> memory{{"x", x_at.get()}, {"w", w_at.get()}, {"p", p_at.get()}};
    if (executable)
      executable->bind(memory);
    else
      executable.emplace(plan_, backend_, HostWeights(), memory);
    const double s = 0.5 + run;
    executable->set_scalar("s", s);
    executable->start();
    executable->wait();
    const std::vector<float> found = values_of(p_at, kRows * kRows), expected = reference(x, w, s);
    EXPECT_TRUE(close(found, expected, Tolerance{1e-5})) << "run " << run;
  }
}

TEST_P(CallerMemory, TakesNoRoomInTheArena) {
  EXPECT_TRUE(plan_.buffer("x").outside && plan_.buffer("w").outside && plan_.buffer("p").outside);
  EXPECT_FALSE(plan_.buffer("s").outside);
  EXPECT_LE(plan_.arena_bytes, 64 + 64 * ((kRows * kRows * 4 + 63) / 64));
  EXPECT_EQ(print_plan(parse_plan(print_plan(plan_))), print_plan(plan_));
}

TEST_P(CallerMemory, WhatIsNotBoundOrNotOutsideIsNamed) {
  const std::shared_ptr<void> memory = backend_->allocate(kRows * kColumns * 4);
  try {
    Executable(plan_, backend_, HostWeights(), {{"x", memory.get()}, {"w", memory.get()}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.where(), "p");
  }
  const std::map<std::string, void*> all{{"x", memory.get()}, {"w", memory.get()}, {"p", memory.get()}};
  Executable executable(plan_, backend_, HostWeights(), all);
  EXPECT_THROW(executable.bind({{"s", memory.get()}}), Error);
  EXPECT_THROW(executable.bind({{"y", memory.get()}}), Error);
}

// A run that is refused leaves no address of an earlier binding behind.
TEST(CallerMemoryOnTheGpu, ARefusedRunStaysRefused) {
  Graph g;
  PlanOptions options;
  options.outside = true;
  const auto backend = backend_named("emulated");
  const std::vector<Result> results{{"y", input(g, "x", DType::F32, {64}) * 2.0}};
  const std::shared_ptr<void> x = backend->allocate(512), y = backend->allocate(512);
  Executable executable(make_plan(results, options), backend, HostWeights(), {{"x", x.get()}, {"y", y.get()}});
  executable.run();
  executable.bind({{"y", static_cast<char*>(y.get()) + 4}});
  for (int i = 0; i < 2; ++i) EXPECT_THROW(executable.run(), Error);
  executable.bind({{"y", y.get()}});
  executable.run();
}

INSTANTIATE_TEST_SUITE_P(Devices, CallerMemory, testing::Values("cpu", "emulated"),
                         [](const auto& device) { return device.param; });

}  // namespace
}  // namespace tenon
