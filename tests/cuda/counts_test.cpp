// Statistics that an epilogue counts while it stores: the sums of exactly what is stored, the same bits for threads in
// any order, on both tensor cores, and no step that reads the results again.
#include <cstdlib>

#include "cuda/emulated_runner.h"
#include "cuda/emulator.h"
#include "support/close.h"

namespace tenon::launches {
namespace {

class Counts : public LaunchTest {
 protected:
  /// Checks y, sum and sq of `value` against y as it was stored: the sums of exactly those values.
  void expect_counted(const std::string& skeleton, const Expr& value, const char* core, bool in_core = true) {
    const Launch l = launch(
        skeleton, {{"y", value}, {"sum", sum(value, ReduceOver::Inner)}, {"sq", sumsq(value, ReduceOver::Inner)}});
    expect_sums(l, core, in_core);
  }

  void expect_sums(const Launch& l, const char* core, bool in_core) {
    setenv("TENON_CUDA_CORE", core, 1);
    const bool wgmma = std::string(core) == "wgmma";
    Tensors first;
    for (const bool backwards : {false, true}) {
      const auto device = std::make_shared<cuda::test::Emulator>(cuda::test::EmulatorOptions{
          .arch = wgmma ? "sm_90a" : "sm_89", .multiprocessors = 4, .backwards = backwards});
      std::string steps;
      const Tensors got = run_on(device, l, tensors, &steps);
      EXPECT_EQ(steps.find("statistics") == std::string::npos, in_core) << steps;
      EXPECT_EQ(steps.find("Wgmma") != std::string::npos, wgmma) << steps;
      compare_sums(got);
      if (first.empty()) first = got;
      for (const auto& [name, t] : got) EXPECT_TRUE(t.data == first.at(name).data) << name << " depends on the order";
    }
    unsetenv("TENON_CUDA_CORE");
  }

 private:
  void compare_sums(const Tensors& got) {
    const HostTensor& y = got.at("y");
    const std::vector<double> values = y.values();
    const int64_t samples = y.shape[0], channels = y.shape[-1], inner = y.shape.numel() / samples / channels;
    std::vector<double> sums(static_cast<size_t>(samples * channels)), squares = sums;
    for (int64_t i = 0; i < y.shape.numel(); ++i) {
      const size_t at = static_cast<size_t>(i / (inner * channels) * channels + i % channels);
      sums[at] += values[static_cast<size_t>(i)];
      squares[at] += values[static_cast<size_t>(i)] * values[static_cast<size_t>(i)];
    }
    const double least = 1e-6 * static_cast<double>(inner);
    for (const auto& [name, want] : {std::pair{"sum", &sums}, std::pair{"sq", &squares}}) {
      if (!got.contains(name)) continue;
      EXPECT_TRUE(close(got.at(name).values(), *want, [&](size_t i, double) { return least + 1e-6 * squares[i]; }))
          << name;
    }
  }
};

const char* const kCores[] = {"mma", "wgmma"};

TEST_F(Counts, RowsOfAProduct) {
  for (const auto& [samples, inner] : {std::pair{2, 128}, {2, 64}, {3, 192}, {1, 1088}}) {
    const Expr x = input(g, numbered("x", inner), DType::BF16, {samples, inner, 64});
    const Expr w = weight(numbered("w", inner), DType::BF16, {80, 64});
    for (const char* core : kCores) expect_counted("gemm", cast(linear(x, w), DType::BF16), core);
  }
}

TEST_F(Counts, SamplesThatEndInsideATile) {
  const Expr x = input(g, "x", DType::BF16, {5, 48, 64}), w = weight("w", DType::BF16, {64, 64});
  expect_counted("gemm", cast(linear(x, w), DType::BF16), "wgmma");
  // A warp's rows would be of two samples.
  const Expr odd = input(g, "odd", DType::BF16, {3, 40, 64});
  for (const char* core : kCores) expect_counted("gemm", cast(linear(odd, w), DType::BF16), core, false);
}

TEST_F(Counts, GroupsOfGroups) {
  const Expr x = input(g, "x", DType::BF16, {2, 4608, 16}), w = weight("w", DType::BF16, {24, 16});
  for (const char* core : kCores) expect_counted("gemm", cast(linear(x, w), DType::BF16), core);
}

TEST_F(Counts, UnderSplitSums) {
  const Expr x = input(g, "x", DType::BF16, {2, 64, 2048}), w = weight("w", DType::BF16, {64, 2048});
  for (const char* core : kCores) expect_counted("gemm", cast(linear(x, w), DType::BF16), core);
}

TEST_F(Counts, WhatTheEpilogueMakes) {
  const Expr x = input(g, "x", DType::BF16, {2, 128, 64}), w = weight("w", DType::BF16, {96, 64});
  const Expr b = param(g, "b", DType::BF16, {96}), r = input(g, "r", DType::BF16, {2, 128, 96});
  const Expr two = weight("two", DType::BF16, {192, 64}), both = linear(x, two);
  for (const char* core : kCores) {
    expect_counted("gemm", cast(linear(x, w) + b + r, DType::BF16), core);
    // Two lanes of 16 columns a warp, as mma's tiles have them, are not in runs.
    expect_counted("gemm", cast(slice(both, -1, 0, 96) * silu(slice(both, -1, 96, 192)), DType::BF16), core,
                   std::string(core) == "wgmma");
  }
}

TEST_F(Counts, OneOfThem) {
  const Expr x = input(g, "x", DType::F16, {2, 128, 64}), w = weight("w", DType::F16, {32, 64});
  const Expr y = cast(linear(x, w), DType::F16);
  for (const char* core : kCores) {
    expect_sums(launch("gemm", {{"y", y}, {"sum", sum(y, ReduceOver::Inner)}}), core, true);
    expect_sums(launch("gemm", {{"y", y}, {"sq", sumsq(y, ReduceOver::Inner)}}), core, true);
  }
}

TEST_F(Counts, PixelsOfAConvolution) {
  const Expr w = weight("w", DType::BF16, {64, 64, 3, 3}), b = param(g, "b", DType::BF16, {64});
  for (const auto& [samples, height, width] : {std::tuple{2, 16, 16}, {2, 8, 8}, {1, 24, 40}, {3, 4, 16}}) {
    const Expr x = input(g, numbered("x", samples * height * width), DType::BF16, {samples, height, width, 64});
    for (const char* core : kCores)
      expect_counted("conv2d", cast(conv2d(x, w, 1, {1, 1, 1, 1}) + b, DType::BF16), core);
  }
}

TEST_F(Counts, BoxesThatReachOverTheEdge) {
  // 9 x 23 pixels: no box fits; whole rows of the copy engine's boxes are outside.
  const Expr x = input(g, "x", DType::BF16, {2, 9, 23, 64}), w = weight("w", DType::BF16, {40, 64, 3, 3});
  expect_counted("conv2d", cast(conv2d(x, w, 1, {1, 1, 1, 1}), DType::BF16), "wgmma");
  const Expr s = input(g, "s", DType::BF16, {2, 16, 16, 64});
  expect_counted("conv2d", cast(conv2d(s, w, 2, {1, 1, 1, 1}), DType::BF16), "wgmma");
}

}  // namespace
}  // namespace tenon::launches
