// Constant scales of linear layers: when they are folded, when not, and that values do not change.
#include <gtest/gtest.h>

#include <cmath>

#include "tenon/expr/ops.h"
#include "tenon/oracle/oracle.h"
#include "tenon/plan/plan.h"
#include "tenon/plan/rewrite.h"
#include "tests/support/close.h"

namespace tenon {
namespace {

class FoldScales : public testing::Test {
 protected:
  Expr x(DType t = DType::F32) { return input(g, "x", t, {5, 8}); }
  Expr w(DType t = DType::F32, const char* name = "w") { return param(g, name, t, {6, 8}); }
  Expr vector(const char* name, int64_t n) { return param(g, name, DType::F32, {n}); }

  static std::vector<double> leaf(const Expr& e) {
    std::vector<double> out;
    const double start = static_cast<double>(e->attrs.text.size() * 3 + static_cast<unsigned char>(e->attrs.text[0]));
    for (int64_t i = 0; i < e.shape().numel(); ++i)
      out.push_back(round_to(e.dtype(), std::sin(start + 1.3 * static_cast<double>(i)) + 0.2));
    return out;
  }
  // The folded form; checks that its values equal those of y within `tolerance`.
  Expr folded(const Expr& y, double tolerance = 1e-12) {
    const Expr f = fold_scales(g, std::array{y})[0];
    const std::vector<double> before = Oracle(leaf).eval(y), after = Oracle(leaf).eval(f);
    EXPECT_TRUE(close(after, before, Tolerance{tolerance, tolerance}));
    return f;
  }
  // Counts multiplications before or after a layer by something not computed from weights alone.
  static int scales(const Expr& y) {
    int n = 0;
    for (const Expr& e : topological(std::array{y}))
      n += (e.is<nodes::Mul>() || e.is<nodes::Div>()) && e->rate != Rate::Constant;
    return n;
  }

  Graph g;
};

TEST_F(FoldScales, BehindALayerWithItsBias) {
  const Expr y = (linear(x(), w()) + vector("b", 6)) * vector("gamma", 6) + input(g, "r", DType::F32, {5, 6});
  EXPECT_EQ(scales(y), 1);
  EXPECT_EQ(scales(folded(y)), 0);
  EXPECT_EQ(scales(folded(vector("gamma", 6) * linear(x(), w()))), 0);
}

TEST_F(FoldScales, SeveralScalesAndLiterals) {
  EXPECT_EQ(scales(folded((linear(x(), w()) * vector("gamma", 6) + vector("b", 6)) * 0.5)), 0);
  EXPECT_EQ(scales(folded(linear(x(), w()) / vector("gamma", 6))), 0);
  EXPECT_EQ(scales(folded((linear(x(), w()) / 4.0) * -3.0)), 0);
}

TEST_F(FoldScales, InFrontOfLayers) {
  const Expr scaled = silu(x()) * vector("s", 8);
  EXPECT_EQ(scales(folded(linear(scaled, w()) + linear(scaled, w(DType::F32, "v")))), 0);
  EXPECT_EQ(scales(folded(linear(x() * 0.25, w()))), 0);
}

TEST_F(FoldScales, WeightsAreRoundedOnce) {
  const Expr y = linear(x(DType::BF16), w(DType::BF16)) * vector("gamma", 6);
  const Expr f = fold_scales(g, std::array{y})[0];
  ASSERT_TRUE(f.is<nodes::Linear>());
  EXPECT_EQ(f->in[1].dtype(), DType::BF16);
  ASSERT_TRUE(f->in[1].is<nodes::Cast>());
  for (const Expr& e : topological(std::array{f->in[1]->in[0]})) EXPECT_EQ(e.dtype(), DType::F32);
}

// f16 holds only so much: neither weights nor rows may be scaled by much. What a vector holds is not known.
TEST_F(FoldScales, OnlyWhatF16Holds) {
  const auto layer = [&](const Expr& rows) { return linear(rows, w(DType::F16)); };
  const Expr h = x(DType::F16), z = silu(x());
  const auto left = [&](const Expr& y) { return scales(fold_scales(g, std::array{y})[0]); };
  EXPECT_EQ(left(layer(h) * 1e6), 1);
  EXPECT_EQ(left(layer(h) / 1e6), 1);
  EXPECT_EQ(left(layer(h) * 1e6 / 1e6), 2);
  EXPECT_EQ(left(layer(h) * -8.0), 0);
  EXPECT_EQ(left((layer(h) * 0.125 + vector("b", 6)) * 2.0), 0);
  EXPECT_EQ(left(layer(h) * vector("gamma", 6)), 0);
  EXPECT_EQ(left(layer(h * 0.25)), 0) << "rows that f16 holds without the scale";
  EXPECT_EQ(left(layer(cast(z * 0.25, DType::F16))), 1) << "rows that it may not hold";
  EXPECT_EQ(left(layer(cast(z * 4.0, DType::F16))), 0);
  const Expr y = linear(x(), w()) * 1e6;
  EXPECT_EQ(left(y), 0);
  EXPECT_EQ(scales(fold_scales(g, std::array{y}, true)[0]), 1) << "in f16 whatever the types";
}

TEST_F(FoldScales, LeavesAloneWhatOthersRead) {
  const Expr h = linear(x(), w());
  EXPECT_EQ(scales(folded(h * vector("gamma", 6) + h)), 1);  // the layer has another reader
  const Expr scaled = x() * vector("s", 8);
  EXPECT_EQ(scales(folded(linear(scaled, w()) + slice(scaled, -1, 0, 6))), 1);
  EXPECT_EQ(scales(folded(linear(x(), w()) * input(g, "r", DType::F32, {5, 6}))), 1);  // not constant
  EXPECT_EQ(scales(folded(linear(x(), w()) * param(g, "p", DType::F32, {5, 1}))), 1);  // of rows
  const Expr layer = linear(x(), w());
  const std::vector<Expr> both = fold_scales(g, std::array{layer, layer * 2.0});  // also a result
  EXPECT_EQ(both[0], layer);
  EXPECT_EQ(scales(both[1]), 1);
}

TEST_F(FoldScales, SwitchedByThePlan) {
  const Expr y = linear(x(), w()) * vector("gamma", 6);
  PlanOptions o;
  const auto reads_gamma = [&](const PlanOptions& options) {
    const Plan p = make_plan(std::array{Result{"y", y}}, options);
    const Launch& l = p.phase(Rate::Step)->launches.at(0);
    const Expr anchor = anchor_of(l);
    for (const Expr& e : topological(std::array{anchor->in[1]}))
      if (e->attrs.text == "gamma") return true;  // part of the weight
    return false;
  };
  EXPECT_TRUE(reads_gamma(o));
  o.fold_scales = false;
  EXPECT_FALSE(reads_gamma(o));
}

// A compiler around library calls would run the layer with its bias, then one launch for the maths after it.
TEST_F(FoldScales, AnchorsAlone) {
  const Expr r = input(g, "r", DType::F32, {5, 6});
  const Expr h = (linear(x(), w()) + vector("b", 6)) * vector("gamma", 6) + r;
  const Expr y = linear(silu(h), param(g, "v", DType::F32, {6, 6})) + h;
  PlanOptions o;
  o.anchors_alone = true;
  const Plan p = make_plan(std::array{Result{"y", y}}, o);
  std::vector<std::string> skeletons;
  for (const Launch& l : p.phase(Rate::Step)->launches) skeletons.push_back(l.skeleton);
  EXPECT_EQ(skeletons, (std::vector<std::string>{"gemm", "map", "gemm", "map"}));
  EXPECT_EQ(p.phase(Rate::Step)->launches[1].outputs.size(), 2u);  // h and silu(h)
}

}  // namespace
}  // namespace tenon
