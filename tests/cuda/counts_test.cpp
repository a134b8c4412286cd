// Statistics that an epilogue counts while it stores: of exactly the stored values, however far from 0, bit-identical
// for any order of threads, on both tensor cores, and without a call that reads the results again.
#include <cstdlib>

#include "tenon/backend/cuda/products/tile_table.h"
#include "tests/cuda/emulated_runner.h"
#include "tests/cuda/emulator.h"
#include "tests/cuda/library_launches.h"
#include "tests/support/close.h"

namespace tenon::launches {
namespace {

class Counts : public LaunchTest {
 protected:
  /// Checks the statistics of `value` against y as stored.
  void expect_counted(const std::string& skeleton, const Expr& value, const char* core, bool in_core = true) {
    expect_statistics(with_statistics(skeleton, value), core, in_core);
  }
  Launch with_statistics(const std::string& skeleton, const Expr& value) {
    return launch(skeleton, {{"y", value},
                             {"sum", sum(value, ReduceOver::Inner)},
                             {"sq", sumsq(value, ReduceOver::Inner)},
                             {"mean", mean(value, ReduceOver::Inner)},
                             {"variance", variance(value, ReduceOver::Inner)}});
  }

  void expect_statistics(const Launch& l, const char* core, bool in_core) {
    setenv("TENON_CUDA_CORE", core, 1);
    const bool wgmma = std::string(core) == "wgmma";
    Tensors first;
    for (const bool backwards : {false, true}) {
      const auto device = std::make_shared<cuda::test::Emulator>(cuda::test::EmulatorOptions{
          .arch = wgmma ? "sm_90a" : "sm_89", .multiprocessors = 4, .backwards = backwards});
      std::string calls;
      const Tensors got = run_on(device, l, tensors, &calls);
      EXPECT_EQ(calls.find("statistics") == std::string::npos, in_core) << calls;
      EXPECT_EQ(calls.find("Wgmma") != std::string::npos, wgmma) << calls;
      compare_statistics(got);
      if (first.empty()) first = got;
      for (const auto& [name, t] : got) EXPECT_TRUE(t.data == first.at(name).data) << name << " depends on the order";
    }
    unsetenv("TENON_CUDA_CORE");
  }

  void compare_statistics(const Tensors& got) {
    const HostTensor& y = got.at("y");
    const std::vector<double> values = y.values();
    const int64_t samples = y.shape[0], channels = y.shape[-1], inner = y.shape.numel() / samples / channels;
    const double n = static_cast<double>(inner), u = unit_roundoff(DType::F32);
    std::vector<double> means(static_cast<size_t>(samples * channels)), m2 = means;
    const auto at = [&](int64_t i) { return static_cast<size_t>(i / (inner * channels) * channels + i % channels); };
    for (int64_t i = 0; i < y.shape.numel(); ++i) means[at(i)] += values[static_cast<size_t>(i)] / n;
    for (int64_t i = 0; i < y.shape.numel(); ++i)
      m2[at(i)] += std::pow(values[static_cast<size_t>(i)] - means[at(i)], 2);
    for (const auto& [name, found] : got) {
      if (name == "y") continue;
      std::vector<double> want(means.size()), bound(means.size());
      for (size_t i = 0; i < means.size(); ++i) {
        // Rounding errors at each of about ten merges: of a mean, proportional to it and to the deviation; of squared
        // deviations, proportional to themselves and to what rounded means add.
        const double deviation = std::sqrt(m2[i] / n), off = 3 * u * (std::abs(means[i]) + deviation),
                     off_m2 = 16 * u * m2[i] + n * off * (off + 2 * deviation);
        const double square = means[i] * means[i];
        std::tie(want[i], bound[i]) = name == "sum"        ? std::pair{n * means[i], n * off}
                                      : name == "mean"     ? std::pair{means[i], off}
                                      : name == "variance" ? std::pair{m2[i] / n, off_m2 / n}
                                                           : std::pair{m2[i] + n * square, off_m2 + 8 * u * n * square};
      }
      EXPECT_TRUE(close(found.values(), want, [&](size_t i, double) { return bound[i]; })) << name;
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
  // A warp's rows would belong to two samples.
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
    // Two lanes of 16 columns per warp, as in mma's tiles, are not permuted.
    expect_counted("gemm", cast(slice(both, -1, 0, 96) * silu(slice(both, -1, 96, 192)), DType::BF16), core,
                   std::string(core) == "wgmma");
  }
}

TEST_F(Counts, FarFromZero) {
  const Expr x = input(g, "x", DType::F16, {2, 128, 64}), w = weight("w", DType::F16, {64, 64});
  const Expr image = input(g, "image", DType::F16, {2, 9, 23, 64}), taps = weight("taps", DType::F16, {64, 64, 3, 3});
  for (const char* core : kCores)
    for (double far : {100.0, -1000.0, 10000.0}) {
      expect_counted("gemm", cast(linear(x, w) + far, DType::F16), core);
      const bool counts = std::string(core) == "wgmma";  // warps of the other core would hold rows of two images
      expect_counted("conv2d", cast(conv2d(image, taps, 1, {1, 1, 1, 1}) + far, DType::F16), core, counts);
    }
}

TEST_F(Counts, OneOfThem) {
  const Expr x = input(g, "x", DType::F16, {2, 128, 64}), w = weight("w", DType::F16, {32, 64});
  const Expr y = cast(linear(x, w), DType::F16);
  for (const char* core : kCores) {
    expect_statistics(launch("gemm", {{"y", y}, {"sum", sum(y, ReduceOver::Inner)}}), core, true);
    expect_statistics(launch("gemm", {{"y", y}, {"variance", variance(y, ReduceOver::Inner)}}), core, true);
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
  // 9 x 23 pixels: no box fits exactly; whole rows of the copy engine's boxes are outside.
  const Expr x = input(g, "x", DType::BF16, {2, 9, 23, 64}), w = weight("w", DType::BF16, {40, 64, 3, 3});
  expect_counted("conv2d", cast(conv2d(x, w, 1, {1, 1, 1, 1}), DType::BF16), "wgmma");
  const Expr s = input(g, "s", DType::BF16, {2, 16, 16, 64});
  expect_counted("conv2d", cast(conv2d(s, w, 2, {1, 1, 1, 1}), DType::BF16), "wgmma");
}

// 207 pixels in tiles of 256 rows, whose warps have rows 64 apart.
TEST_F(Counts, BoxesThatLeaveRowsOfATileEmpty) {
  const Expr x = input(g, "x", DType::BF16, {2, 9, 23, 64}), w = weight("w", DType::BF16, {40, 64, 3, 3});
  const auto root = std::filesystem::temp_directory_path() / numbered("tenon_counts_", getpid());
  setenv("TENON_CACHE_DIR", root.c_str(), 1);
  const auto device = std::make_shared<NamedEmulator>("sm_90a");
  cuda::TileTable::of(device->facts())
      .add("conv2d 2x9x23x64 -> 9x23x40 by 3x3x1 lanes 1 bytes 2",
           "wgmma 256x96 stages 5 resident 1 cluster 1 splits 1", 1);
  std::string calls;
  compare_statistics(
      run_on(device, with_statistics("conv2d", cast(conv2d(x, w, 1, {1, 1, 1, 1}), DType::BF16)), tensors, &calls));
  EXPECT_NE(calls.find("WgmmaTile<256, 96"), std::string::npos) << calls;
  unsetenv("TENON_CACHE_DIR");
  std::filesystem::remove_all(root);
}

// 48 rows a sample in tiles of 64 rows, whose columns are divided among a cluster's blocks.
TEST_F(Counts, TilesThatBlocksShare) {
  const Expr x = input(g, "x", DType::BF16, {2, 48, 2048}), w = weight("w", DType::BF16, {184, 2048});
  const auto device =
      std::make_shared<cuda::test::Emulator>(cuda::test::EmulatorOptions{.arch = "sm_90a", .multiprocessors = 132});
  std::string calls;
  compare_statistics(run_on(device, with_statistics("gemm", cast(linear(x, w), DType::BF16)), tensors, &calls));
  EXPECT_NE(calls.find("WgmmaTile<64, 64, 8, 1, 1, false, 8>"), std::string::npos) << calls;
}

}  // namespace
}  // namespace tenon::launches
