// Gathers with an index out of range: NaN, so that the check of results finds it.
#include <cmath>

#include "tests/cuda/emulated_runner.h"
#include "tests/cuda/emulator.h"

namespace tenon::launches {
namespace {

using OutOfRange = LaunchTest;

void expect_rows(const HostTensor& got, int64_t columns, const std::vector<bool>& there) {
  const std::vector<double> values = got.values();
  for (size_t row = 0; row < there.size(); ++row)
    for (size_t c = 0; c < static_cast<size_t>(columns); ++c)
      EXPECT_NE(std::isnan(values[row * static_cast<size_t>(columns) + c]), there[row]) << row << ", " << c;
}

// Also 64-bit numbers whose lower half is a valid row index.
TEST_F(OutOfRange, RowsAreNaN) {
  constexpr double k32 = 4294967296.0;
  tensors.emplace("narrow", HostTensor::from(DType::I32, {5}, std::vector<double>{3, -1, 0, 4, 5}));
  tensors.emplace("wide", HostTensor::from(DType::I64, {5}, std::vector<double>{3, k32 + 1, 0, 2 - k32, k32 / 2}));
  for (const int64_t columns : {8, 3}) {  // fragments, and single elements
    const Expr table = input(g, numbered("table", columns), DType::BF16, {4, columns});
    const Expr narrow = input(g, "narrow", DType::I32, {5}), wide = input(g, "wide", DType::I64, {5});
    const Launch l = launch("map", {{"by_narrow", gather(table, narrow)}, {"by_wide", gather(table, wide)}});
    tensors.emplace(table->attrs.text, random_tensor(DType::BF16, table.shape(), 1));
    const Tensors got = run_on(std::make_shared<cuda::test::Emulator>(), l, tensors);
    expect_rows(got.at("by_narrow"), columns, {true, false, true, false, false});
    expect_rows(got.at("by_wide"), columns, {true, false, true, false, false});
  }
}

}  // namespace
}  // namespace tenon::launches
