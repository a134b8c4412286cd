// Products in f32 on the emulator: a row's bits are the same alone, among a few others and in a large matrix, whichever
// kernel and tile computes it, so that tokens are sampled with the bits that training recomputes.
#include <algorithm>
#include <array>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/expr/ops.h"
#include "tenon/plan/plan.h"
#include "tests/cuda/emulated_runner.h"
#include "tests/cuda/emulator.h"

namespace tenon::launches {
namespace {

struct Weighed {
  int64_t n, k;
  bool gated;  ///< silu of one half of the columns times the other: two lanes
};

// The first `rows` rows' results, and which kernels computed them.
std::vector<double> product_of(const Weighed& w, int64_t rows, std::string& calls) {
  const auto device = std::make_shared<cuda::test::Emulator>();
  Graph g;
  const Expr x = input(g, "x", DType::F32, {rows, w.k});
  const Expr sums = linear(x, param(g, "w", DType::F32, {w.gated ? 2 * w.n : w.n, w.k}));
  const Expr y = w.gated ? silu(slice(sums, -1, 0, w.n)) * slice(sums, -1, w.n, 2 * w.n) : sums * 1.5;
  PlanOptions o;
  o.name = "product";
  o.target = cuda::make_cuda_backend(device)->target();
  const Plan plan = make_plan(std::array{Result{"y", y}}, o);
  const std::vector<Launch>& launches = plan.phases.front().launches;
  EXPECT_EQ(launches.size(), 1u);
  constexpr int64_t kMost = 150;
  HostTensor all = random_tensor(DType::F32, {kMost, w.k}, 1);
  all.data.resize(static_cast<size_t>(rows * w.k) * 4);
  all.shape = {rows, w.k};
  const Tensors tensors{{"x", all}, {"w", random_tensor(DType::F32, {w.gated ? 2 * w.n : w.n, w.k}, 2)}};
  calls.clear();
  const Tensors got = run_on(device, launches.front(), tensors, &calls);
  EXPECT_EQ(got.size(), 1u);
  return got.begin()->second.values();
}

TEST(GemmSimt, ARowHasTheSameBitsAmongAnyOthers) {
  for (const Weighed& w : {Weighed{36, 100, false}, {70, 1100, false}, {40, 132, true}, {3, 60, false}}) {
    std::string calls;
    const std::vector<double> most = product_of(w, 150, calls);
    EXPECT_NE(calls.find("MmaTile"), std::string::npos) << calls;
    for (const int64_t rows : {1, 2, 7, 8, 9, 16, 17, 33, 64, 65}) {
      const std::vector<double> some = product_of(w, rows, calls);
      EXPECT_EQ(calls.find("SimtTile") != std::string::npos, rows <= 64) << calls;
      ASSERT_LE(some.size(), most.size());
      EXPECT_TRUE(std::equal(some.begin(), some.end(), most.begin())) << rows << " rows of " << w.n << "x" << w.k;
    }
  }
}

class GemmSimtLayers : public LaunchTest {};

TEST_F(GemmSimtLayers, OfALanguageModel) {
  const auto layer = [&](const std::string& id, int64_t rows, int64_t n, int64_t k) {
    return linear(input(g, "x" + id, DType::F32, {rows, k}), weight("w" + id, DType::F32, {n, k}));
  };
  expect(launch("gemm", {{"down", layer("down", 16, 896, 4864)}}), {DType::F32, DType::F32, 4864});
  const Expr both = layer("up", 3, 2 * 4864, 896), gate = slice(both, -1, 0, 4864);
  expect(launch("gemm", {{"gated", silu(gate) * slice(both, -1, 4864, 2 * 4864)}}), {DType::F32, DType::F32, 896, 60});
}

}  // namespace
}  // namespace tenon::launches
