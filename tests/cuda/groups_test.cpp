// The groups skeleton at production sizes, with the multiprocessors of an H200 and of an L4: every way in which its
// blocks are combined, bit-identical for any order of threads.
#include "tenon/backend/cuda/launches/launch_kernel.h"
#include "tests/cuda/emulated_runner.h"
#include "tests/cuda/emulator.h"
#include "tests/support/close.h"

namespace tenon::launches {
namespace {

class Groups : public LaunchTest {
 protected:
  /// Means and variances of [samples, inner, channels] f16 around `far` on `arch` against double precision. `partials`:
  /// blocks leave theirs in memory.
  void expect_moments(const char* arch, const Shape& shape, bool partials, double far = 0) {
    SCOPED_TRACE(std::string(arch) + " " + shape.str());
    const bool hopper = std::string(arch) == "sm_90a";
    const std::string name = arch + shape.str();
    std::vector<double> values = random_tensor(DType::F16, shape, 7).values();
    for (double& v : values) v += far;
    tensors.insert_or_assign(name, HostTensor::from(DType::F16, shape, values));
    const Expr x = input(g, name, DType::F16, shape);
    const Launch l =
        launch("groups", {{"mean", mean(x, ReduceOver::Inner)}, {"variance", variance(x, ReduceOver::Inner)}});
    Tensors first;
    for (const bool backwards : {false, true}) {
      const auto device = std::make_shared<cuda::test::Emulator>(
          cuda::test::EmulatorOptions{.arch = arch, .multiprocessors = hopper ? 132 : 58, .backwards = backwards});
      const LaunchMemory memory = cuda::LaunchBodies::make(device, l)->memory();
      EXPECT_EQ(memory.scratch > 0, partials);
      std::string calls;
      const Tensors got = run_on(device, l, tensors, &calls);
      if (first.empty()) compare_moments(got, tensors.at(name), shape);
      if (first.empty()) first = got;
      for (const auto& [output, t] : got)
        EXPECT_TRUE(t.data == first.at(output).data) << output << " depends on the order";
    }
  }

 private:
  static void compare_moments(const Tensors& got, const HostTensor& x, const Shape& shape) {
    const std::vector<double> values = x.values();
    const int64_t inner = shape[1], channels = shape[2];
    const double n = static_cast<double>(inner), u = unit_roundoff(DType::F32);
    std::vector<double> means(static_cast<size_t>(shape[0] * channels)), variances = means;
    const auto at = [&](int64_t i) { return static_cast<size_t>(i / (inner * channels) * channels + i % channels); };
    for (int64_t i = 0; i < shape.numel(); ++i) means[at(i)] += values[static_cast<size_t>(i)] / n;
    for (int64_t i = 0; i < shape.numel(); ++i)
      variances[at(i)] += std::pow(values[static_cast<size_t>(i)] - means[at(i)], 2) / n;
    const auto of_mean = [&](size_t i) { return 3 * u * (std::abs(means[i]) + std::sqrt(variances[i])); };
    EXPECT_TRUE(close(got.at("mean").values(), means, [&](size_t i, double) { return of_mean(i); })) << "mean";
    const auto of_variance = [&](size_t i, double) {
      return 16 * u * variances[i] + of_mean(i) * (of_mean(i) + 2 * std::sqrt(variances[i]));
    };
    EXPECT_TRUE(close(got.at("variance").values(), variances, of_variance)) << "variance";
  }
};

TEST_F(Groups, FewRowsOfFewColumnsAreOneClusters) {
  expect_moments("sm_90a", {2, 4096, 320}, false);
  expect_moments("sm_90a", {2, 1024, 640}, false);
  expect_moments("sm_90a", {3, 777, 40}, false);
}

TEST_F(Groups, FarFromZero) {
  for (double far : {100.0, 2000.0}) {
    expect_moments("sm_90a", {2, 4096, 64}, false, far);
    expect_moments("sm_89", {2, 300, 40}, false, far);
    expect_moments("sm_89", {1, 65536, 24}, true, far);
    expect_moments("sm_89", {2, 7, 3}, false, far);
  }
}

TEST_F(Groups, FewerAreOneBlocks) {
  for (const char* arch : {"sm_90a", "sm_89"}) expect_moments(arch, {2, 300, 40}, false);
}

TEST_F(Groups, OthersAreAddedByTheLastBlock) {
  for (const char* arch : {"sm_90a", "sm_89"}) {
    expect_moments(arch, {1, 4224, 3840}, true);
    expect_moments(arch, {1, 65536, 72}, true);
  }
  expect_moments("sm_89", {2, 4096, 320}, true);
}

}  // namespace
}  // namespace tenon::launches
