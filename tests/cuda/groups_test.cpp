// The groups skeleton at sizes of production, with the multiprocessors of an H200 and of an L4: every way in which its
// blocks meet, the same bits for threads in any order.
#include "cuda/emulated_runner.h"
#include "cuda/emulator.h"
#include "support/close.h"
#include "tenon/backend/cuda/launch_kernel.h"

namespace tenon::launches {
namespace {

class Groups : public LaunchTest {
 protected:
  /// Sums and squares of [samples, inner, channels] bf16 on `arch` against sums in double precision. `partials`: blocks
  /// leave theirs in memory.
  void expect_sums(const char* arch, const Shape& shape, bool partials) {
    SCOPED_TRACE(std::string(arch) + " " + shape.str());
    const bool hopper = std::string(arch) == "sm_90a";
    const std::string name = arch + shape.str();
    tensors.emplace(name, random_tensor(DType::BF16, shape, 7));
    const Expr x = input(g, name, DType::BF16, shape);
    const Launch l = launch("groups", {{"sum", sum(x, ReduceOver::Inner)}, {"sq", sumsq(x, ReduceOver::Inner)}});
    Tensors first;
    for (const bool backwards : {false, true}) {
      const auto device = std::make_shared<cuda::test::Emulator>(
          cuda::test::EmulatorOptions{.arch = arch, .multiprocessors = hopper ? 132 : 58, .backwards = backwards});
      const LaunchMemory memory = cuda::make_kernel(device, l)->memory();
      EXPECT_EQ(memory.scratch > 0, partials);
      std::string steps;
      const Tensors got = run_on(device, l, tensors, &steps);
      if (first.empty()) compare_sums(got, tensors.at(name), shape);
      if (first.empty()) first = got;
      for (const auto& [output, t] : got)
        EXPECT_TRUE(t.data == first.at(output).data) << output << " depends on the order";
    }
  }

 private:
  static void compare_sums(const Tensors& got, const HostTensor& x, const Shape& shape) {
    const std::vector<double> values = x.values();
    const int64_t inner = shape[1], channels = shape[2];
    std::vector<double> sums(static_cast<size_t>(shape[0] * channels)), squares = sums;
    for (int64_t i = 0; i < shape.numel(); ++i) {
      const size_t at = static_cast<size_t>(i / (inner * channels) * channels + i % channels);
      const double v = values[static_cast<size_t>(i)];
      sums[at] += v;
      squares[at] += v * v;
    }
    const auto of_squares = [&](size_t i, double) { return 1e-6 * (static_cast<double>(inner) + squares[i]); };
    EXPECT_TRUE(close(got.at("sum").values(), sums, of_squares)) << "sum";
    EXPECT_TRUE(close(got.at("sq").values(), squares, Tolerance{0, 1e-6})) << "sq";
  }
};

TEST_F(Groups, FewRowsOfFewColumnsAreOneClusters) {
  expect_sums("sm_90a", {2, 4096, 320}, false);
  expect_sums("sm_90a", {2, 1024, 640}, false);
  expect_sums("sm_90a", {3, 777, 40}, false);
}

TEST_F(Groups, FewerAreOneBlocks) {
  for (const char* arch : {"sm_90a", "sm_89"}) expect_sums(arch, {2, 300, 40}, false);
}

TEST_F(Groups, OthersAreAddedByTheLastBlock) {
  for (const char* arch : {"sm_90a", "sm_89"}) {
    expect_sums(arch, {1, 4224, 3840}, true);
    expect_sums(arch, {1, 65536, 72}, true);
  }
  expect_sums("sm_89", {2, 4096, 320}, true);
}

}  // namespace
}  // namespace tenon::launches
