// Warming up: loads what the first run would need, so that the first run afterwards is already recorded.
#include <gtest/gtest.h>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/expr/ops.h"
#include "tenon/runtime/executable.h"
#include "tests/cuda/counting_emulator.h"

namespace tenon {
namespace {

Plan squares(Graph& g) {
  const Expr x = input(g, "x", DType::F32, {4, 16});
  return make_plan(std::array{Result{"y", x * x}});
}

std::vector<float> ramp() {
  std::vector<float> x(64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.25f * static_cast<float>(i);
  return x;
}

TEST(WarmUp, TheNextRunIsRecorded) {
  for (const bool warm : {false, true}) {
    Graph g;
    const auto device = std::make_shared<cuda::test::CountingEmulator>();
    Executable e(squares(g), cuda::make_cuda_backend(device), HostWeights());
    if (warm) e.warm_up();
    EXPECT_EQ(device->recordings, 0);
    e.set("x", ramp());
    e.run_all();
    EXPECT_EQ(device->recordings, warm ? 1 : 0);
    const std::vector<float> y = e.get("y");
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], ramp()[i] * ramp()[i]) << i;
  }
}

TEST(WarmUp, NothingWhereNothingIsRecorded) {
  Graph g;
  Executable e(squares(g), make_backend("cpu", {1}), HostWeights());
  e.set("x", ramp());
  e.warm_up();
  EXPECT_EQ(e.get("y"), std::vector<float>(64, 0.0f));
}

}  // namespace
}  // namespace tenon
