// A linear layer applied to a linear layer's sum: when the two become one, when not, and the effect on rounding.
#include <gtest/gtest.h>

#include <cmath>

#include "tenon/explain/parse_plan.h"
#include "tenon/expr/ops.h"
#include "tenon/oracle/oracle.h"
#include "tenon/plan/plan.h"
#include "tenon/plan/rewrite.h"
#include "tests/plan/golden.h"
#include "tests/support/close.h"

namespace tenon {
namespace {

constexpr int64_t kRows = 6, kWidth = 64, kDepth = 256;

std::vector<double> value_of(const Expr& e) {
  std::vector<double> out;
  const double start = static_cast<double>(e->attrs.text.size() * 3 + static_cast<unsigned char>(e->attrs.text[0]));
  const double size = e.shape().rank() == 2 && e.is<nodes::Param>() ? 1 / std::sqrt(e.shape().cols()) : 1;
  for (int64_t i = 0; i < e.shape().numel(); ++i)
    out.push_back(round_to(e.dtype(), size * std::sin(start + 1.3 * static_cast<double>(i * i % 977))));
  return out;
}

class FoldProducts : public testing::Test {
 protected:
  struct Block {
    int64_t depth = kDepth, width = kWidth, out = kWidth;
    DType type = DType::F32;
    bool biased = true, beside = true, shared = true;
  };
  Expr weight(const char* name, int64_t rows, int64_t columns, DType t) { return param(g, name, t, {rows, columns}); }
  Expr bias(const char* name, int64_t n) { return param(g, name, DType::F32, {n}); }

  // u (w g + b + h) + c + x, where h is also read by the norm that gives g: the end of a transformer block.
  Expr block(const Block& o) {
    const Expr h = input(g, "h", o.type, {kRows, o.width});
    const Expr norm = h - mean(h);
    const Expr before = linear(cast(o.shared ? norm : input(g, "n", o.type, {kRows, o.width}), o.type),
                               weight("v", o.depth, o.width, o.type));
    Expr sum = linear(cast(gelu(before), o.type), weight("w", o.width, o.depth, o.type));
    if (o.biased) sum = sum + bias("b", o.width);
    if (o.beside) sum = sum + h;
    Expr y = linear(reshape(cast(sum, o.type), {2, kRows / 2, o.width}), weight("u", o.out, o.width, o.type));
    if (o.biased) y = y + bias("c", o.out);
    return cast(y + input(g, "x", o.type, {2, kRows / 2, o.out}), o.type);
  }
  std::vector<Expr> folded(std::initializer_list<Expr> roots) { return fold_products(g, std::vector<Expr>(roots)); }
  static int layers(const Expr& y) {
    int n = 0;
    for (const Expr& e : topological(std::array{y})) n += e.is<nodes::Linear>();
    return n;
  }
  static int params(const Expr& y) {
    int n = 0;
    for (const Expr& e : topological(std::array{y})) n += e.is<nodes::Param>();
    return n;
  }

  Graph g;
};

TEST_F(FoldProducts, TheEndOfABlockIsOneLayer) {
  const Expr y = block({}), f = folded({y})[0];
  EXPECT_EQ(layers(y), 3);
  EXPECT_EQ(layers(f), 2);
  for (const Expr& e : topological(std::array{f})) {
    if (!e.is<nodes::Linear>() || e->in[0].shape().cols() == kWidth) continue;
    EXPECT_EQ(e->in[0].shape(), (Shape{2, kRows / 2, kDepth + kWidth}));
    EXPECT_EQ(e->in[1].shape(), (Shape{kWidth, kDepth + kWidth}));
  }
  EXPECT_TRUE(close_to_largest(Oracle(value_of).eval(f), Oracle(value_of).eval(y), 1e-12));
  for (const Block& o : {Block{.biased = false}, Block{.beside = false}, Block{.out = 32}, Block{.depth = 32 * 9}}) {
    const Expr other = block(o), one = folded({other})[0];
    EXPECT_EQ(layers(one), 2);
    EXPECT_TRUE(close_to_largest(Oracle(value_of).eval(one), Oracle(value_of).eval(other), 1e-12));
  }
}

// The two layers rounding only weights and inputs; the distance of the result from that with the sum's rounding, and
// with the product's.
TEST_F(FoldProducts, RoundsNoMoreThanBefore) {
  for (const DType t : {DType::BF16, DType::F16}) {
    const Expr y = block({.type = t}), f = folded({y})[0];
    Memo memo;
    const Replace exact = [](const Expr& e, std::span<const Expr> in) {
      return e.is<nodes::Cast>() ? cast(in[0], DType::F64) : Expr();
    };
    const std::vector<double> want = Oracle(value_of).eval(rebuild(g, y, exact, memo));
    const auto error = [&](const Expr& e) {
      const std::vector<double> got = Oracle(value_of).eval(e);
      double squares = 0, size = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        squares += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
      }
      return std::sqrt(squares / size);
    };
    const double before = error(y), after = error(f);
    RecordProperty(std::string(name_of(t)) + "_before", std::to_string(before));
    RecordProperty(std::string(name_of(t)) + "_after", std::to_string(after));
    EXPECT_GT(after, 0);
    EXPECT_LE(after, unit_roundoff(t)) << name_of(t);
    EXPECT_LE(after, 1.25 * before) << name_of(t);
  }
}

// The product of the weights is in f32, and is rounded once.
TEST_F(FoldProducts, WeightsAreRoundedOnce) {
  const Expr f = folded({block({.type = DType::BF16})})[0];
  int computed = 0;
  for (const Expr& e : topological(std::array{f})) {
    if (!e.is<nodes::Param>() || !is_computed(e)) continue;
    ++computed;
    EXPECT_EQ(e.dtype(), e.shape().rank() == 1 ? DType::F32 : DType::BF16);
    Graph own;
    const Expr value = computation_of(own, e->attrs.text);
    for (const Expr& x : topological(std::array{value})) EXPECT_EQ(x.dtype(), DType::F32);
    EXPECT_EQ(params(value), e.shape().rank() == 1 ? 3 : 2);  // u b + c, u w
  }
  EXPECT_EQ(computed, 2);
}

TEST_F(FoldProducts, LeavesAloneWhatItWouldNotHelp) {
  const auto stays = [&](const Expr& y) { return folded({y})[0] == y; };
  EXPECT_TRUE(stays(block({.out = 2 * kWidth})));                    // more operations
  EXPECT_TRUE(stays(block({.depth = kWidth, .out = kWidth + 32})));  // a little more
  EXPECT_TRUE(stays(block({.depth = 72})));                          // rows that do not meet at a 128-byte boundary
  const Expr h = input(g, "h", DType::F32, {kRows, kWidth}), w = weight("w", kWidth, kWidth, DType::F32);
  const Expr u = weight("u", kWidth, kWidth, DType::F32), sum = linear(silu(h), w) + h;
  EXPECT_FALSE(stays(linear(sum, u)));
  EXPECT_TRUE(stays(linear(silu(sum), u)));                                      // not linear
  EXPECT_TRUE(stays(linear(sum, u) * sum));                                      // the sum has another reader
  EXPECT_TRUE(stays(linear(linear(silu(h), w) * 2.0 + h, u)));                   // more than a sum
  EXPECT_TRUE(stays(linear(linear(silu(h), w) + silu(h * 2.0), u)));             // computed only for this sum
  EXPECT_TRUE(stays(linear(sum, input(g, "v", DType::F32, {kWidth, kWidth}))));  // weights that change
  EXPECT_TRUE(stays(linear(linear(silu(h), w * 2.0) + h, u)));                   // more than a parameter
  const Expr narrow = cast(sum, DType::BF16);
  EXPECT_TRUE(stays(linear(narrow, weight("q", kWidth, kWidth, DType::E4M3))));
  EXPECT_TRUE(stays(linear(narrow, weight("u", kWidth, kWidth, DType::BF16))));  // h and what w reads are f32
  const std::vector<Expr> both = folded({linear(sum, u), sum});                  // also a result
  EXPECT_EQ(layers(both[0]), 2);
}

TEST_F(FoldProducts, IsAPassOfThePlanner) {
  const Expr y = block({.type = DType::BF16});
  const auto launches = [&](PlanOptions o, int64_t launch_bytes = int64_t{2} << 20) {
    o.target.launch_bytes = launch_bytes;
    return make_plan(std::array{Result{"y", y}}, o).phase(Rate::Step)->launches.size();
  };
  EXPECT_EQ(launches({}), 2u);
  EXPECT_EQ(launches({.fold_scales = false}), 3u);
  EXPECT_EQ(launches({}, 65536), 3u);  // not worth a product when loading
  for (const char* policy : {"e4m3 rows", "operands, i8 weights: u"}) {
    const PrecisionPolicy quantised = PrecisionPolicy::parse(policy);
    EXPECT_EQ(launches({.precision = quantised}), launches({.fold_scales = false, .precision = quantised})) << policy;
  }
  const Plan p = make_plan(std::array{Result{"y", y}}, {.name = "block", .target = {.launch_bytes = int64_t{2} << 20}});
  EXPECT_EQ(print_plan(parse_plan(print_plan(p))), print_plan(p));
  expect_golden("folded_product.txt", summary(p));
}

}  // namespace
}  // namespace tenon
