// Sums and means over inner axes of infinities, which have no deviation from one another.
#include <gtest/gtest.h>

#include <cmath>

#include "tenon/expr/ops.h"
#include "tenon/runtime/executable.h"
#include "tests/support/isa_backend.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kRows = 300, kChannels = 5;

TEST(Statistics, InfinitiesAnywhere) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {1, kRows, kChannels});
  const Plan plan =
      make_plan(std::array{Result{"sum", sum(x, ReduceOver::Inner)}, Result{"mean", mean(x, ReduceOver::Inner)}});
  for (const Isa isa : {Isa::Avx2, Isa::Avx512}) {
    if (!tile_ops(isa)) continue;
    Executable e(plan, std::make_shared<IsaBackend>(isa, 1), HostWeights());
    // One row; the first and the last two, the median of the rows of a strip among them; both infinities.
    for (const std::vector<int64_t>& rows : {std::vector<int64_t>{0}, {17}, {299}, {0, 16, 31}, {0, 298, 299}}) {
      for (const bool both : {false, true}) {
        std::vector<float> values(kRows * kChannels, 1.5f);
        for (const int64_t r : rows) {
          values[static_cast<size_t>(r * kChannels + 1)] = INFINITY;
          values[static_cast<size_t>(r * kChannels + 3)] = -INFINITY;
        }
        if (both) values[200 * kChannels + 1] = -INFINITY;
        e.set("x", values);
        e.run_all();
        for (const auto& [name, finite] : {std::pair{"sum", 450.0f}, {"mean", 1.5f}}) {
          const std::vector<float> got = e.get(name);
          for (const size_t c : {0, 2, 4}) EXPECT_EQ(got[c], finite) << name << " " << rows[0];
          EXPECT_TRUE(both ? std::isnan(got[1]) : got[1] == INFINITY) << name << " " << rows[0] << " " << got[1];
          EXPECT_EQ(got[3], -INFINITY) << name << " " << rows[0];
        }
      }
    }
  }
}

}  // namespace
}  // namespace tenon::cpu
