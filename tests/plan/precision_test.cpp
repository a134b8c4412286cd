// The types that anchors multiply in: the policy's rules, how plans show them, and what becomes of quantised layers.
#include "tenon/plan/precision.h"
#include "tenon/kernels/form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/i8_blocks.h"
#include "tenon/explain/parse_plan.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/oracle/oracle.h"
#include "tenon/plan/plan.h"
#include "tenon/plan/rewrite.h"
#include "tests/support/close.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Expr set(const Expr& y, const std::string& policy) {
  return set_precision(y.graph(), std::array{y}, PrecisionPolicy::parse(policy))[0];
}
DType arithmetic(const Expr& y) { return arithmetic_of(y).value_or(DType::Bool); }

// The arithmetic of all anchors below y, in order.
std::vector<DType> all_of(const Expr& y) {
  std::vector<DType> out;
  for (const Expr& e : topological(std::array{y}))
    if (e->family() == Family::Anchor) out.push_back(arithmetic(e));
  return out;
}

int count(const Expr& y, bool (Expr::*is)() const) {
  int n = 0;
  for (const Expr& e : topological(std::array{y})) n += (e.*is)();
  return n;
}

std::vector<double> leaf(const Expr& e) {
  std::vector<double> out;
  const auto start = static_cast<double>(e->attrs.text.size() * 3 + static_cast<unsigned char>(e->attrs.text.back()));
  for (int64_t i = 0; i < e.shape().numel(); ++i)
    out.push_back(round_to(e.dtype(), std::sin(start + 1.3 * static_cast<double>(i)) + 0.2));
  return out;
}

TEST(Precision, OfTheOperandsWhereNobodySaysMore) {
  Graph g;
  struct Case {
    DType x, w, linear, conv, attention;
  };
  constexpr DType kF32 = DType::F32, kF16 = DType::F16, kBf16 = DType::BF16, kE4m3 = DType::E4M3;
  for (const Case& c :
       {Case{kF32, kF32, kF32, kF32, kF32}, Case{kBf16, kBf16, kBf16, kBf16, kBf16}, Case{kF16, kF16, kF16, kF16, kF16},
        Case{kE4m3, kE4m3, kE4m3, kF16, kF32}, Case{kBf16, kE4m3, kBf16, kBf16, kF32},
        Case{kE4m3, kF16, kF16, kF16, kF32}, Case{kF32, kBf16, kF32, kF32, kF32}, Case{kF16, kBf16, kF32, kF32, kF32},
        Case{kF32, kE4m3, kF32, kF32, kF32}}) {
    const std::string id = std::string(name_of(c.x)) + " by " + std::string(name_of(c.w));
    const auto x = [&](const char* name, const Shape& s) { return input(g, id + name, c.x, s); };
    const auto w = [&](const char* name, const Shape& s) { return param(g, id + name, c.w, s); };
    EXPECT_EQ(arithmetic(set(linear(x("x", {4, 16}), w("w", {8, 16})), "operands")), c.linear) << id;
    EXPECT_EQ(arithmetic(set(conv2d(x("p", {1, 4, 4, 16}), w("f", {8, 16, 3, 3})), "operands")), c.conv) << id;
    const Expr q = x("q", {1, 2, 4, 16}), k = input(g, id + "k", c.w, {1, 2, 4, 16});
    EXPECT_EQ(arithmetic(set(attention(q, k, k, 1), "operands")), c.attention) << id;
  }
}

TEST(Precision, IsAnAttributeThatPrintsAndParses) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {1, 4, 4, 16});
  const Expr y = conv2d(x, param(g, "w", DType::BF16, {8, 16, 3, 3}), 1, {1, 1, 1, 1});
  EXPECT_THAT(print(y), HasSubstr("conv2d<1,1,1,1,1>("));
  const Expr bf16 = multiplied_in(y, DType::BF16), f32 = multiplied_in(y, DType::F32);
  EXPECT_NE(bf16, f32);
  EXPECT_EQ(multiplied_in(f32, DType::BF16), bf16);
  EXPECT_THAT(print(bf16), HasSubstr("conv2d<bf16,1,1,1,1,1>("));
  EXPECT_EQ(parse(g, print(bf16))[0], bf16);
  const std::string text = print_plan(make_plan(std::array{Result{"y", y}}));
  EXPECT_THAT(text, HasSubstr(" precision \"operands\"\n"));
  EXPECT_EQ(print_plan(parse_plan(text)), text);
  std::string unsaid = text;
  unsaid.replace(unsaid.find("conv2d<bf16,"), 12, "conv2d<");
  try {
    parse_plan(unsaid);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("conv2d has no arithmetic type"));
  }
}

TEST(Precision, RoundsNoOperandUnseen) {
  Graph g;
  const Expr y = linear(input(g, "x", DType::F32, {4, 16}), param(g, "w", DType::BF16, {8, 16}));
  for (const DType t : {DType::BF16, DType::F16, DType::E4M3}) EXPECT_THROW(multiplied_in(y, t), Error);
  EXPECT_NO_THROW(multiplied_in(y, DType::F32));
  EXPECT_THROW(multiplied_in(input(g, "z", DType::F32, {4}), DType::F32), Error);
}

TEST(Precision, PoliciesRoundWhereTheySay) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 16}), w = param(g, "w", DType::BF16, {8, 16});
  const Expr f16 = set(linear(x, w), "f16");
  EXPECT_EQ(f16, multiplied_in(linear(cast(x, DType::F16), cast(w, DType::F16)), DType::F16));
  EXPECT_EQ(set(linear(x, w), "bf16"), multiplied_in(linear(cast(x, DType::BF16), w), DType::BF16));
  EXPECT_EQ(set(linear(x, w), "f32"), multiplied_in(linear(x, w), DType::F32));
  const Expr pinned = multiplied_in(linear(x, w), DType::F32);
  for (const char* policy : {"operands", "bf16", "f16", "e4m3 rows", "i8 weights", "i8 blocks"})
    EXPECT_EQ(set(pinned, policy), pinned) << policy;
}

TEST(Precision, PoliciesAreText) {
  for (const char* text : {"operands", "f32", "bf16", "f16", "e4m3 rows", "i8 weights", "i8 blocks",
                           "e4m3 rows, bf16: t_embedder, f32: final.1"})
    EXPECT_EQ(PrecisionPolicy::parse(text).text(), text);
  EXPECT_EQ(PrecisionPolicy::parse("f32 ,f16:a b ").text(), "f32, f16: a b");
  for (const char* text : {"", "e5m2", "f32,", "f32, bf16", "f32, bf16:", "f32, : w", "f32; bf16: w"}) {
    try {
      PrecisionPolicy::parse(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Usage) << text;
    }
  }
}

// A layer and its gradient multiply the same e4m3 numbers; a matrix that is only read transposed has its own rows.
TEST(Precision, AGradientReadsTheForwardPassesRows) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {5, 32}), h = input(g, "h", DType::F32, {5, 24});
  const Expr w = param(g, "w", DType::BF16, {24, 32}), back = linear(h, transpose(w));
  const std::vector<Expr> both = set_precision(g, std::array{linear(x, w), back}, PrecisionPolicy::parse("e4m3 rows"));
  const QuantizedRows qw = quantize_rows(w), qh = quantize_rows(h * reshape(qw.scale, {24}));
  EXPECT_EQ(both[1], multiplied_in(linear(qh.q, transpose(qw.q)), DType::E4M3) * qh.scale);
  const Expr want = linear(cast(qh.q, DType::F32) * qh.scale, transpose(cast(qw.q, DType::F32)));
  EXPECT_TRUE(close(Oracle(leaf).eval(both[1]), Oracle(leaf).eval(want), Tolerance{1e-9, 1e-9}));
  const QuantizedRows own = quantize_rows(transpose(w)), rows = quantize_rows(h);
  EXPECT_EQ(set(back, "e4m3 rows"),
            multiplied_in(linear(rows.q, own.q), DType::E4M3) * rows.scale * reshape(own.scale, {32}));
}

// With copies, the gradient's product finds a transposed copy in memory, made once of the same numbers.
TEST(Precision, AGradientReadsATransposedCopy) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {5, 32}), h = input(g, "h", DType::F32, {5, 24});
  const Expr w = param(g, "w", DType::BF16, {24, 32});
  const std::array results{Result{"y", linear(x, w)}, Result{"dx", linear(h, transpose(w))}};
  PlanOptions o;
  o.precision = PrecisionPolicy::parse("e4m3 rows");
  const auto reads_memory = [&](bool copies) {
    o.copies_weights = copies;
    const Plan plan = make_plan(results, o);
    const Expr read = plan.phases[1].launches[1].form->holes[1];
    EXPECT_EQ(read.shape(), (Shape{32, 24}));
    EXPECT_TRUE(!copies || plan.buffer(read->attrs.text).rate == Rate::Constant);
    return read.is<nodes::Input>();
  };
  EXPECT_TRUE(reads_memory(true));
  EXPECT_FALSE(reads_memory(false));
  const std::array roots{results[0].value, results[1].value};
  const Expr copied = set_precision(g, roots, o.precision, true)[1], read = set_precision(g, roots, o.precision)[1];
  EXPECT_TRUE(close(Oracle(leaf).eval(copied), Oracle(leaf).eval(read), Tolerance{0, 0}));
}

TEST(Precision, QuantisedLayersMeanTheirProducts) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {3, 5, 32}), w = param(g, "w", DType::BF16, {24, 32});
  const Expr y = set(linear(x, w) + param(g, "b", DType::F32, {24}), "e4m3 rows");
  EXPECT_THAT(all_of(y), ElementsAre(DType::E4M3));
  const QuantizedRows qx = quantize_rows(x), qw = quantize_rows(w);
  const std::vector<double> want = Oracle(leaf).eval(
      linear(cast(qx.q, DType::F32) * qx.scale, cast(qw.q, DType::F32) * qw.scale) + param(g, "b", DType::F32, {24}));
  EXPECT_TRUE(close(Oracle(leaf).eval(y), want, Tolerance{1e-9, 1e-9}));
  EXPECT_THAT(all_of(set(linear(x, input(g, "k", DType::BF16, {24, 32})), "e4m3 rows")), ElementsAre(DType::BF16));
  // Weights that are already e4m3 keep their values.
  const Expr q = param(g, "q", DType::E4M3, {24, 32});
  EXPECT_EQ(set(linear(x, q), "e4m3 rows"), multiplied_in(linear(qx.q, q), DType::E4M3) * qx.scale);
  // Only layers with constant weights: rows of an attention's products are not known beforehand.
  const Expr k = input(g, "k", DType::BF16, {2, 6, 32}), v = input(g, "v", DType::BF16, {2, 4, 32});
  EXPECT_THAT(all_of(set(linear(k, v), "e4m3 rows")), ElementsAre(DType::BF16));
}

// Rows of joined tensors are quantised part by part, to the same numbers as those of one tensor.
TEST(Precision, PartsOfRowsShareTheirScale) {
  Graph g;
  const Expr a = input(g, "a", DType::BF16, {8, 16}), b = input(g, "b", DType::BF16, {8, 16});
  const Expr w = param(g, "w", DType::BF16, {4, 32});
  const std::vector<Expr> joined = set_precision(g, std::array{linear(concat({cast(tanh(a), DType::BF16), b}, -1), w)},
                                                 PrecisionPolicy::parse("e4m3 rows"));
  std::vector<Expr> products;
  for (const Expr& e : topological(joined))
    if (e.is<nodes::Linear>()) products.push_back(e);
  ASSERT_EQ(products.size(), 1U);
  EXPECT_TRUE(products[0]->in[0].is<nodes::Concat>());
  EXPECT_EQ(products[0]->in[0].dtype(), DType::E4M3);
}

TEST(Precision, WeightsInI8MeanTheirProducts) {
  Graph g;
  const Expr w = param(g, "w", DType::BF16, {24, 32}), b = param(g, "b", DType::F32, {24});
  const QuantizedRows q = quantize_rows(w, DType::I8);
  for (const DType t : {DType::BF16, DType::F16, DType::F32}) {
    const Expr x = input(g, std::string("x") += name_of(t), t, {3, 5, 32});
    const Expr y = set(linear(x, w) + b, "i8 weights");
    EXPECT_THAT(all_of(y), ElementsAre(t));
    const std::vector<double> got = Oracle(leaf).eval(y);
    EXPECT_TRUE(close(got, Oracle(leaf).eval(linear(x, cast(q.q, DType::F32) * q.scale) + b), Tolerance{1e-9, 1e-9}));
    // Half a step of 1 / 127 of the largest weight, times at most 32 rows' numbers.
    EXPECT_TRUE(close(got, Oracle(leaf).eval(linear(x, w) + b), Tolerance{32 * 1.2 * 1.2 / 254}));
  }
  const Expr x = input(g, "x", DType::BF16, {4, 32}), whole = param(g, "i", DType::I8, {24, 32});
  const Expr e4m3 = param(g, "e", DType::E4M3, {24, 32}), k = input(g, "k", DType::BF16, {2, 4, 32});
  for (const Expr& y : {linear(x, whole), linear(x, e4m3), linear(k, k)})  // nothing to quantise
    EXPECT_EQ(set(y, "i8 weights"), multiplied_in(y, DType::BF16)) << print(y);
  EXPECT_THROW(quantize_rows(w, DType::U8), Error);
}

// In blocks a product rounds both operands itself.
TEST(Precision, ProductsInBlocksOfI8) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {3, 5, 80}), w = param(g, "w", DType::F32, {24, 80});
  const Expr y = set(linear(x, w), "i8 blocks");
  EXPECT_EQ(y, multiplied_in(linear(x, w), DType::I8));
  EXPECT_EQ(parse(g, print(y))[0], y);
  const std::vector<double> xs = leaf(x), ws = leaf(w);
  const std::vector<double> a = i8_rows(xs.data(), 15, 80, BlockScale::F32),
                            b = i8_rows(ws.data(), 24, 80, BlockScale::F16);
  const auto rounded = [&](const Expr& e) { return e == x ? a : b; };
  const std::vector<double> got = Oracle(leaf).eval(y);
  EXPECT_TRUE(close(got, Oracle(rounded).eval(linear(x, w)), Tolerance{1e-12, 1e-12}));
  EXPECT_FALSE(close(got, Oracle(leaf).eval(linear(x, w)), Tolerance{1e-3, 1e-3}));
  EXPECT_TRUE(close(got, Oracle(leaf).eval(linear(x, w)), Tolerance{80 * 1.2 * 1.2 / 127}));
  const Expr k = input(g, "k", DType::BF16, {2, 4, 32}), image = input(g, "i", DType::BF16, {1, 4, 4, 16});
  EXPECT_EQ(set(linear(k, k), "i8 blocks"), multiplied_in(linear(k, k), DType::BF16));  // no weights
  EXPECT_THROW(multiplied_in(conv2d(image, param(g, "f", DType::BF16, {8, 16, 3, 3})), DType::I8), Error);
}

TEST(Precision, RowsOfI8AreTheNearest) {
  Graph g;
  const std::vector<double> rows{127, 63.5, -63.5, 0.49, -127, 1e-3, 0, 0, 0, 0, 0, 0};
  const Expr x = param(g, "x", DType::F32, {2, 6});
  const QuantizedRows q = quantize_rows(x, DType::I8);
  const std::vector<double> got = Oracle([&](const Expr&) { return rows; }).eval(q.q);
  EXPECT_THAT(got, ElementsAre(127, 64, -63, 0, -127, 0, 0, 0, 0, 0, 0, 0));
}

TEST(Precision, ExceptionsByTheWeightsName) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {4, 32});
  const auto layer = [&](const Expr& in, const char* name) {
    return cast(linear(in, param(g, name, DType::BF16, {32, 32})), DType::BF16);
  };
  const Expr y = layer(layer(layer(x, "t_embedder.0.weight"), "layers.0.w1.weight"), "final.weight");
  EXPECT_THAT(all_of(set(y, "e4m3 rows, bf16: t_embedder, f32: final")),
              ElementsAre(DType::BF16, DType::E4M3, DType::F32));
  PlanOptions o;
  o.precision = PrecisionPolicy::parse("e4m3 rows, bf16: t_embedder");
  const Plan p = make_plan(std::array{Result{"y", y}}, o);
  const std::string text = print_plan(p);
  EXPECT_THAT(text, HasSubstr("precision \"e4m3 rows, bf16: t_embedder\""));
  EXPECT_EQ(parse_plan(text).precision, o.precision);
  EXPECT_EQ(print_plan(parse_plan(text)), text);
}

// The scales of a weight's rows are in memory for the epilogue, yet the weight is computed from the parameter alone:
// values that read only parameters are packed once.
TEST(Precision, QuantisedWeightsReadOnlyParameters) {
  Graph g;
  PlanOptions o;
  o.precision = PrecisionPolicy::parse("e4m3 rows");
  const Expr x = input(g, "x", DType::BF16, {4, 32});
  const Expr y = linear(x, param(g, "w", DType::BF16, {24, 32})) + param(g, "b", DType::F32, {24});
  const Plan p = make_plan(std::array{Result{"y", y}}, o);
  ASSERT_EQ(p.phases.size(), 2u);
  EXPECT_EQ(p.phases[0].rate, Rate::Constant);
  ASSERT_EQ(p.phases[1].launches.size(), 1u);
  EXPECT_TRUE(of_weights_only(p.phases[1].launches[0].form->holes[1])) << print_plan(p);
}

// Two projections of the same quantised rows are one product, with the scales of both for its columns.
TEST(Precision, QuantisedSiblingsMergeWithTheirScales) {
  Graph g;
  const QuantizedRows x = quantize_rows(input(g, "x", DType::BF16, {2, 8, 32}));
  const auto head = [&](const std::string& name, bool bias) {
    const Expr w = param(g, name + ".q", DType::E4M3, {32, 32}), s = param(g, name + ".s", DType::F32, {32});
    Expr y = linear(x.q, w) * x.scale * s;
    if (bias) y = y + param(g, name + ".b", DType::F32, {32});
    return permute(reshape(cast(y, DType::BF16), {2, 8, 2, 16}), {0, 2, 1, 3});
  };
  for (const bool bias : {false, true}) {
    const Expr apart = attention(head("q", bias), head("k", bias), head("v", bias), 0.25);
    const Expr merged = merge_sibling_linears(g, std::array{apart})[0];
    EXPECT_EQ(count(apart, &Expr::is<nodes::Linear>), 3);
    EXPECT_EQ(count(merged, &Expr::is<nodes::Linear>), 1);
    EXPECT_TRUE(close(Oracle(leaf).eval(merged), Oracle(leaf).eval(apart), Tolerance{1e-12, 1e-12}));
  }
  // Scaled by other rows, it is a separate product.
  const Expr rows = input(g, "rows", DType::F32, {2, 8, 1});
  const Expr odd = linear(x.q, param(g, "odd.q", DType::E4M3, {32, 32})) * rows * param(g, "odd.s", DType::F32, {32});
  const Expr other = permute(reshape(cast(odd, DType::BF16), {2, 8, 2, 16}), {0, 2, 1, 3});
  const Expr y = attention(head("q", false), head("k", false), other, 0.25);
  EXPECT_EQ(count(merge_sibling_linears(g, std::array{y})[0], &Expr::is<nodes::Linear>), 2);
}

TEST(Precision, PinnedSiblingsStayWhatTheyAre) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {1, 8, 32});
  const auto head = [&](const char* name, DType t) {
    const Expr y = multiplied_in(linear(x, param(g, name, DType::BF16, {32, 32})), t);
    return permute(reshape(y, {1, 8, 2, 16}), {0, 2, 1, 3});
  };
  const Expr y = attention(head("q", DType::F32), head("k", DType::BF16), head("v", DType::BF16), 0.25);
  const Expr merged = merge_sibling_linears(g, std::array{y})[0];
  EXPECT_THAT(all_of(set(merged, "operands")), ElementsAre(DType::F32, DType::BF16, DType::F32));
}

TEST(Precision, ScalesAreNotFoldedIntoQuantisedWeights) {
  Graph g;
  const Expr gamma = param(g, "gamma", DType::F32, {8}), s = param(g, "s", DType::F32, {16});
  const Expr w = param(g, "w", DType::E4M3, {8, 16});
  const Expr x = input(g, "x", DType::BF16, {4, 16});
  for (const Expr& y : {linear(x, w) * gamma, linear(quantize_rows(x).q, w) * gamma,
                        linear(cast(x * s, DType::E4M3), param(g, "v", DType::BF16, {8, 16}))})
    EXPECT_EQ(fold_scales(g, std::array{y})[0], y) << print(y);
  EXPECT_NE(fold_scales(g, std::array{linear(x, param(g, "v", DType::BF16, {8, 16})) * gamma})[0],
            linear(x, param(g, "v", DType::BF16, {8, 16})) * gamma);
}

TEST(Precision, WeightsMoveInWhatTheyAreMultipliedIn) {
  for (const auto& [policy, each] : {std::pair{"bf16", 2}, {"f32", 4}, {"i8 blocks", 1}}) {
    Graph g;
    const Expr w = param(g, "w", DType::F32, {32, 64}) * param(g, "norm", DType::F32, {64});
    PlanOptions options;
    options.precision = PrecisionPolicy::parse(policy);
    const Plan p = make_plan(std::array{Result{"y", linear(input(g, "x", DType::BF16, {2, 64}), w)}}, options);
    EXPECT_EQ(bytes_moved(p), 2 * 64 * 2 + 32 * 64 * each + 2 * 32 * 4) << policy;
  }
}

}  // namespace
}  // namespace tenon
