// Whole plans, launch by launch: what the planner puts in memory because no launch can compute it on the way. The
// tensors are larger than what a launch may compute for itself (the lets of a form).
#include "tenon/expr/precision.h"
#include "tenon/plan/plan.h"
#include "tests/skeletons/harness.h"
#include "tests/support/close.h"

namespace tenon::launches {
namespace {

class Planned : public LaunchTest {
 protected:
  static constexpr int64_t kRows = 128, kCols = 520;

  Expr x(const std::string& name = "x", int64_t cols = kCols) {
    return made(input(g, name, DType::F32, {kRows, cols}));
  }
  /// Plans `value`, EXPECTs the oracle's values of every launch by itself and of all in sequence.
  void expect_plan(const Expr& value) {
    const Plan plan = make_plan(std::array{Result{"y", value}});
    const std::vector<double> want = Oracle(tensors).eval(value);
    for (const Phase& p : plan.phases)
      for (const Launch& l : p.launches) {
        expect(l, {DType::F32, DType::F32, kCols, 10});
        for (auto& [name, t] : run(l)) tensors.insert_or_assign(name, std::move(t));
      }
    EXPECT_TRUE(agreement(tenon::compare(tensors.at("y"), value.shape(), want, Tolerance{1e-4}))) << print_plan(plan);
  }
  /// The same by a policy, after which the anchors multiply in these; `lost`: of the largest value, in all.
  void expect_policy(const std::string& policy, const Expr& value, const std::vector<DType>& arithmetic, double lost) {
    SCOPED_TRACE(policy);
    PlanOptions options;
    options.precision = PrecisionPolicy::parse(policy);
    const Plan plan = make_plan(std::array{Result{"y", value}}, options);
    std::vector<DType> found;
    for (const Phase& p : plan.phases)
      for (const Launch& l : p.launches) {
        const DType t = l.form->anchor ? arithmetic_of(l.form->anchor).value() : DType::F32;
        if (l.form->anchor) found.push_back(t);
        expect(l, {l.outputs[0].value.dtype(), t, kCols, 10, t == DType::E4M3 ? kLostOfE4m3 : 0});
        for (auto& [name, made] : run(l)) tensors.insert_or_assign(name, std::move(made));
      }
    EXPECT_EQ(found, arithmetic) << print_plan(plan);
    const std::vector<double> want = Oracle(tensors).eval(value);
    EXPECT_TRUE(
        agreement(tenon::compare(tensors.at("y"), value.shape(), want, Tolerance{lost * largest_magnitude(want)})))
        << print_plan(plan);
  }
  Expr made(const Expr& leaf) {
    tensors.emplace(leaf->attrs.text, random_tensor(leaf.dtype(), leaf.shape(), static_cast<unsigned>(tensors.size())));
    return leaf;
  }
};

Expr layer_norm(const Expr& x) {
  const Expr d = x - mean(x);
  return d * rsqrt(mean(d * d) + 1e-5);
}
Expr softmax(const Expr& x) {
  const Expr e = exp(x - reduce_max(x));
  return e / sum(e);
}

TEST_F(Planned, ReductionsSeenThroughASlice) { expect_plan(slice(softmax(layer_norm(x())), 1, 1, kCols)); }

TEST_F(Planned, ReductionsSeenThroughAPermutationAndAReshape) {
  expect_plan(softmax(transpose(layer_norm(x()))));
  expect_plan(layer_norm(reshape(softmax(x()), {kRows * 4, kCols / 4})));
}

TEST_F(Planned, ReductionsSeenThroughAConcatenation) {
  expect_plan(layer_norm(pad(concat({softmax(x()), x("z", 24)}, 1), {1, 0, 0, 2})));
}

// Heads whose neighbours are turned in pairs, behind a norm of every head: no view moves a number to another row.
TEST_F(Planned, ReductionsOfRowsThatAreSplitAndJoinedAgain) {
  const Shape heads{kRows, 4, kCols / 4}, pairs{kRows, 4, kCols / 8, 2};
  const Expr n = layer_norm(reshape(x(), heads));
  const auto both = [&](int64_t i) { return reshape(broadcast(slice(reshape(n, pairs), -1, i, i + 1), pairs), heads); };
  const auto table = [&](const char* name) { return made(input(g, name, DType::F32, {kRows, 1, kCols / 4})); };
  const Expr turned = n * table("cos") + both(1) * table("minus_sin_even") + both(0) * table("sin_odd");
  EXPECT_EQ(make_plan(std::array{Result{"y", turned}}).counts().total, 1);
  expect_plan(turned);
}

TEST_F(Planned, ReductionsOfRowsThatAreSplitAndStayApart) {
  const Expr rows = mean(x() * x());
  const Expr again = reshape(broadcast(rows, {kRows, kCols}), {kRows, 4, kCols / 4});
  expect_plan(again + made(input(g, "z", DType::F32, {kRows, 4, kCols / 4})));
  expect_plan(permute(broadcast(rows, {kRows, kCols}), {1, 0}) + made(input(g, "t", DType::F32, {kCols, kRows})));
}

TEST_F(Planned, ReductionsThatChooseRows) {
  const Expr a = layer_norm(x());
  const Expr row = clamp(floor(reshape(reduce_max(a), {kRows})), 0, 3);
  expect_plan(gather(a, cast(row, DType::I32)) * 2.0);
}

TEST_F(Planned, ReductionsRepeatedOverOtherRows) {
  expect_plan(broadcast(sqrt(mean(x() * x())), {kRows, 5}) + x("z", 5));
}

TEST_F(Planned, RowsOfSeveralLengths) {
  expect_plan(mean(x()) + reduce_max(x("z", 7)));
  expect_plan(x("z", 7) - mean(x()) * mean(x("z", 7)));
}

TEST_F(Planned, ReductionsOfReductions) { expect_plan(sum(silu(mean(layer_norm(x())))) + 1.0); }

TEST_F(Planned, ReducedRowsAsAnOperandOfAProduct) {
  expect_plan(linear(mean(layer_norm(x())), weight("w", DType::F32, {8, 1})));
}

TEST_F(Planned, ByEveryPolicy) {
  constexpr DType kF32 = DType::F32, kF16 = DType::F16, kBf16 = DType::BF16, kE4m3 = DType::E4M3;
  const Expr heads = permute(
      reshape(linear(cast(layer_norm(x()), kBf16), weight("w", kBf16, {64, kCols})), {1, kRows, 4, 16}), {0, 2, 1, 3});
  const Expr image = reshape(permute(attention(heads, heads, heads, 0.25), {0, 2, 1, 3}), {1, 16, 8, 64});
  const Expr y = conv2d(image, weight("f", kBf16, {8, 64, 3, 3}), 1, {1, 1, 1, 1});
  expect_policy("operands", y, {kBf16, kF32, kF32}, 1e-3);
  expect_policy("f32", y, {kF32, kF32, kF32}, 1e-3);
  expect_policy("f16", y, {kF16, kF16, kF16}, 1e-2);
  expect_policy("bf16", y, {kBf16, kBf16, kBf16}, 0.05);
  expect_policy("e4m3 rows", y, {kE4m3, kBf16, kBf16}, 0.25);
  expect_policy("i8 weights", y, {kBf16, kF32, kF32}, 0.05);
  expect_policy("e4m3 rows, f16: w, f32: f", y, {kF16, kBf16, kF32}, 0.05);
}

TEST_F(Planned, LayersOverQuantizedRows) {
  const auto layer = [&](const Expr& x, const std::string& name, int64_t n) {
    return linear(x, weight(name, DType::BF16, {n, kCols})) + weight(name + ".b", DType::F32, {n});
  };
  expect_policy("e4m3 rows", layer(cast(layer_norm(x()), DType::BF16), "w", 96), {DType::E4M3}, 0.25);
  expect_policy("i8 weights", layer(cast(layer_norm(x()), DType::BF16), "w", 96), {DType::BF16}, 0.05);
  const Expr h = cast(layer_norm(x("h")), DType::BF16);  // siblings: one product, one set of quantised rows
  const auto head = [&](const char* name) { return permute(reshape(layer(h, name, 64), {kRows, 4, 16}), {1, 0, 2}); };
  expect_policy("e4m3 rows", concat({head("q"), head("k"), head("v")}, 0), {DType::E4M3}, 0.25);
}

TEST_F(Planned, StatisticsOfWhatReducesRows) {
  const Expr image = reshape(layer_norm(x()), {4, 8, 4, kCols});
  expect_plan(sum(image, ReduceOver::Inner));
}

}  // namespace
}  // namespace tenon::launches
