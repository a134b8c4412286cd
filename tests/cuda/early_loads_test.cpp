// Loads of a kernel before its wait for the preceding launch: right even if that launch runs as late as possible, wrong
// as soon as a buffer is marked settled that is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/expr/ops.h"
#include "tenon/nn/norm.h"
#include "tenon/runtime/executable.h"
#include "tests/cuda/emulator.h"

namespace tenon {
namespace {

using cuda::test::Emulator;
using cuda::test::EmulatorOptions;

class EarlyLoads : public testing::Test {
 protected:
  static constexpr int64_t kPixels = 300, kChannels = 64, kCount = 2 * kPixels * kChannels;

  // h = softmax(x); silu(group_norm(h)): rows, groups, and a map with lets that reads h early.
  Plan normalised() {
    const Expr x = input(g_, "x", DType::F32, {2, kPixels, kChannels}), e = exp(x - reduce_max(x));
    const Expr h = cast(e / sum(e), DType::BF16), w = input(g_, "w", DType::F32, {kChannels}),
               b = input(g_, "b", DType::F32, {kChannels});
    const std::array results{Result{"y", silu(nn::group_norm(h, nn::GroupNorm{8, 1e-5}, w, b))}};
    PlanOptions options;
    options.outside = true;
    options.hoist = false;
    return make_plan(results, options);
  }
  /// y, with launch `late` of the device run as late as possible.
  static std::vector<float> run(const Plan& plan, int late) {
    EmulatorOptions options;
    options.late = late;
    const auto device = std::make_shared<Emulator>(options);
    const std::shared_ptr<Backend> backend = cuda::make_cuda_backend(device);
    const std::shared_ptr<Stream> stream = backend->make_stream();
    std::map<std::string, std::shared_ptr<void>> tensors;
    std::map<std::string, void*> memory;
    for (const auto& [name, count] : {std::pair{"x", kCount}, {"w", kChannels}, {"b", kChannels}, {"y", kCount}}) {
      std::vector<float> values(static_cast<size_t>(count));
      for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 0.37f) * 2 + 0.5f;
      tensors[name] = backend->allocate(count * 4);
      backend->copy_in(*stream, tensors[name].get(), values.data(), count * 4);
      memory[name] = tensors[name].get();
    }
    Executable executable(plan, backend, HostWeights(), memory, stream);
    executable.start();
    std::vector<float> y(static_cast<size_t>(kCount));
    backend->copy_out(*stream, y.data(), memory.at("y"), kCount * 4);
    return y;
  }
  static std::vector<Launch>& launches(Plan& plan) { return plan.phases.back().launches; }

  Graph g_;
};

TEST_F(EarlyLoads, SeeWhatWasWholeBeforeTheLaunchInFront) {
  Plan plan = normalised();
  ASSERT_EQ(launches(plan).size(), 3u) << print_plan(plan);
  EXPECT_EQ(launches(plan)[1].skeleton, "groups");
  const std::vector<std::string>& settled = launches(plan)[2].settled;
  EXPECT_NE(std::find(settled.begin(), settled.end(), launches(plan)[0].outputs[0].buffer), settled.end());
  const std::vector<float> in_order = run(plan, -1);
  for (int late : {0, 1, 2}) EXPECT_EQ(run(plan, late), in_order) << "launch " << late << " as late as it can run";
}

// Launches in another order: h is written by the launch just before the map, which wrongly assumes it complete.
TEST_F(EarlyLoads, OfWhatIsNotSettledAreSeenToBeWrong) {
  Plan plan = normalised();
  std::swap(launches(plan)[0], launches(plan)[1]);
  EXPECT_EQ(run(plan, -1), run(plan, -1));
  EXPECT_NE(run(plan, 1), run(plan, -1));
}

}  // namespace
}  // namespace tenon
