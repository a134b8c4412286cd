// What the tests of the tensor-core kernels share: operands and epilogues as code generation writes them, poisoned
// results.
#pragma once
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tenon/backend/cuda/products/mma_tile.h"
#include "tenon/backend/cuda/products/skinny_tile.h"
#include "tenon/backend/cuda/products/wgmma_tile.h"
#include "tenon/core/dtype.h"
#include "tests/cuda/emulator.h"
#include "tests/support/close.h"

namespace tenon::cuda::test {

/// The element type's name in kernels' text.
inline std::string element_name(DType t) { return t == DType::BF16 ? "BF16" : t == DType::F16 ? "F16" : "E4M3"; }

/// An operand of rows of `columns` elements (text) at p.`pointer`, `run` elements at a time.
inline std::string operand(const std::string& name, DType t, const std::string& pointer, const std::string& columns,
                           int run) {
  return "struct " + name + " {\n  using T = " + element_name(t) +
         ";\n  static constexpr int kRun = " + std::to_string(run) +
         ";\n  static constexpr bool kInRuns = false;\n  struct Row { const T* at; };\n  DEV static Row row(const "
         "Params& p, int r) { return {p." +
         pointer + " + static_cast<int64_t>(r) * " + columns +
         "}; }\n  DEV static const T* at(const Row& row, int col) { return row.at + col; }\n};\n";
}

/// y[row, col] = the product of the lanes + row + col, in f32, rows of `columns` (text) columns.
inline std::string epilogue(int lanes, int run, const std::string& columns) {
  return "struct Epilogue {\n  static constexpr int kLanes = " + std::to_string(lanes) +
         ", kRun = " + std::to_string(run) +
         ";\n  using Computed = Frag<float, kRun>;\n"
         "  DEV static Computed compute(const Params& p, int row, int col, const Frag<float, kRun> (&acc)[kLanes]) {\n"
         "    Frag<float, kRun> y = acc[0];\n    for (int i = 0; i < kRun; ++i) {\n"
         "      for (int l = 1; l < kLanes; ++l) y.v[i] *= acc[l].v[i];\n      y.v[i] += row + 0.5f * (col + i);\n    "
         "}\n    return y;\n  }\n"
         "  DEV static void store(const Params& p, int row, int col, const Computed& y) {\n"
         "    tenon::device::store(p.y + static_cast<int64_t>(row) * (" +
         columns + ") + col, y);\n  }\n};\n";
}

/// What tensor cores lose of a sum by adding up a stage's products in fewer bits than f32 has, relative to the size of
/// sums of this length. Of e4m3 they keep 13 bits below the largest of 32 products and the stage's sum so far.
inline double stage_error(DType t) { return t == DType::E4M3 ? 0x1p-10 : 0; }

/// Device memory of random elements of a type, and their values.
struct RandomTensor {
  std::shared_ptr<void> memory;
  std::vector<float> values;

  RandomTensor(Device& device, DType t, int64_t count, unsigned seed) : values(static_cast<size_t>(count)) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    memory = device.allocate(count * size_of(t));
    for (int64_t i = 0; i < count; ++i) {
      store_element(t, memory.get(), i, normal(random));
      values[static_cast<size_t>(i)] = static_cast<float>(load_element(t, memory.get(), i));
    }
  }
};

/// Results that are NaN until they are written.
inline std::shared_ptr<void> poisoned(Device& device, int64_t bytes) {
  auto memory = device.allocate(bytes);
  std::fill_n(static_cast<unsigned char*>(memory.get()), bytes, static_cast<unsigned char>(0xff));
  return memory;
}

/// Workspace (poisoned) and counters of a launch.
struct Meeting {
  std::shared_ptr<void> workspace, counters;
  int64_t count;

  Meeting(Device& device, const CoreLaunch& launch, device::SplitK& split)
      : workspace(poisoned(device, launch.workspace_bytes)),
        counters(device.allocate(launch.counters * 4)),
        count(launch.counters) {
    split.workspace = static_cast<float*>(workspace.get());
    split.counters = static_cast<unsigned*>(counters.get());
  }
  bool counters_are_zero() const {
    return std::all_of(static_cast<unsigned*>(counters.get()), static_cast<unsigned*>(counters.get()) + count,
                       [](unsigned c) { return c == 0; });
  }
};

/// EXPECTs that `check` fails for a result with a NaN, and for one of which a block was never written.
template <class Check>
void expect_faults_fail(const std::vector<float>& y, const Check& check) {
  std::vector<float> nan = y, dropped = y;
  nan[0] = NAN;
  std::fill_n(dropped.begin() + static_cast<std::ptrdiff_t>(y.size() / 2), std::min<size_t>(64, y.size() / 2), NAN);
  check(y);
  EXPECT_NONFATAL_FAILURE(check(nan), "the first at 0: nan");
  EXPECT_NONFATAL_FAILURE(check(dropped), "64 of ");
}

/// The result of kernel `text` for `params`, `floats` numbers at params.y. Twice, the blocks' threads once in the
/// opposite order: both must be the same to the bit.
template <class Params>
std::vector<float> run_core(const std::string& name, const std::string& text, const CoreLaunch& launch, Params params,
                            int64_t floats) {
  std::vector<float> out[2];
  for (int backwards = 0; backwards < 2; ++backwards) {
    Emulator device(EmulatorOptions{.backwards = backwards == 1});
    const auto stream = device.make_stream();
    Meeting meeting(device, launch, params.sizes.split);
    auto y = poisoned(device, floats * 4);
    params.y = static_cast<float*>(y.get());
    device.load({name, text})->launch(*stream, launch.shape, std::as_bytes(std::span(&params, 1)));
    out[backwards].resize(static_cast<size_t>(floats));
    device.copy_out(*stream, out[backwards].data(), y.get(), floats * 4);
    EXPECT_TRUE(meeting.counters_are_zero());
  }
  EXPECT_EQ(std::memcmp(out[0].data(), out[1].data(), static_cast<size_t>(floats) * 4), 0);
  return out[0];
}

}  // namespace tenon::cuda::test
