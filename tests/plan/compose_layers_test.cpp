// Linear layers in a row: where they become one, where not, and that the values stay.
#include <gtest/gtest.h>

#include <cmath>

#include "support/close.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/oracle.h"
#include "tenon/expr/precision.h"
#include "tenon/plan/plan.h"
#include "tenon/plan/rewrite.h"

namespace tenon {
namespace {

class ComposeLayers : public testing::Test {
 protected:
  Expr in(const char* name, const Shape& shape, DType t = DType::F32) { return input(g, name, t, shape); }
  Expr w(const char* name, const Shape& shape, DType t = DType::F32) { return param(g, name, t, shape); }

  static std::vector<double> leaf(const Expr& e) {
    std::vector<double> out;
    const double start = static_cast<double>(e->attrs.text.size() * 3 + static_cast<unsigned char>(e->attrs.text[0]));
    for (int64_t i = 0; i < e.shape().numel(); ++i)
      out.push_back(round_to(e.dtype(), std::sin(start + 1.3 * static_cast<double>(i)) + 0.2));
    return out;
  }
  // Layers over what is no weight.
  static int layers(std::span<const Expr> roots) {
    int n = 0;
    for (const Expr& e : topological(roots)) n += e.is<nodes::Linear>() && e->rate != Rate::Constant;
    return n;
  }
  // Layers that are left; their values must be those of y within `tolerance`.
  int left(const std::vector<Expr>& y, double tolerance = 1e-12) {
    const std::vector<Expr> now = compose_layers(g, y);
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_TRUE(close(Oracle(leaf).eval(now[i]), Oracle(leaf).eval(y[i]), Tolerance{tolerance, tolerance}));
    return layers(now);
  }
  // w2 (w1 h + b + r), r being read by others too.
  std::vector<Expr> residual_layers(DType t = DType::F32, int64_t out = 6) {
    const Expr h = in("h", {5, 24}, t), r = cast(silu(in("r", {5, 6}, t)), t);
    const Expr x = cast(linear(h, w("w1", {6, 24}, t)) + w("b", {6}, t) + r, t);
    return {linear(x, w("w2", {out, 6}, t)) + w("b2", {out}, t), tanh(r)};
  }

  Graph g;
};

TEST_F(ComposeLayers, WithBiasAndResidual) {
  EXPECT_EQ(layers(residual_layers()), 2);
  EXPECT_EQ(left(residual_layers()), 1);
  EXPECT_EQ(left(residual_layers(DType::F16), 4e-3), 1);
}

TEST_F(ComposeLayers, WithLessInBetween) {
  const Expr h = in("h", {5, 24}), inner = linear(h, w("w1", {6, 24})), w2 = w("w2", {4, 6});
  EXPECT_EQ(left({linear(inner, w2)}), 1);
  EXPECT_EQ(left({linear(w("b", {6}) + inner, w2)}), 1);
  EXPECT_EQ(left({linear(inner + in("r", {5, 6}), w2)}), 1);
}

TEST_F(ComposeLayers, ThroughReshapesOfRows) {
  const Expr h = in("h", {2, 12, 24}), r = in("r", {2, 12, 6});
  const Expr x = linear(h, w("w1", {6, 24})) + r;
  EXPECT_EQ(left({linear(reshape(x, {2, 3, 4, 6}), reshape(w("w2", {6, 6, 1, 1}), {6, 6}))}), 1);
  EXPECT_EQ(left({linear(reshape(x, {2, 18, 4, 1}), w("w3", {4, 1}))}), 2);  // other rows
}

TEST_F(ComposeLayers, WeightsAreRoundedOnce) {
  for (const Expr& e : topological(compose_layers(g, residual_layers(DType::F16))))
    if (e.is<nodes::Linear>() && e->rate == Rate::Constant) {
      EXPECT_EQ(arithmetic_of(e), DType::F32);
      for (const Expr& x : topological(e->in)) EXPECT_EQ(x.dtype(), DType::F32);
    }
}

TEST_F(ComposeLayers, NotWhereThatTakesMoreMultiplications) {
  EXPECT_EQ(left(residual_layers(DType::F32, 7)), 2);
  EXPECT_EQ(left({linear(linear(in("h", {5, 24}), w("down", {2, 24})), w("up", {24, 2}))}), 2);  // of low rank
}

TEST_F(ComposeLayers, NotWhereTheInnerValueIsSeen) {
  const Expr h = in("h", {5, 24}), inner = linear(h, w("w1", {6, 24})), y = linear(inner, w("w2", {6, 6}));
  EXPECT_EQ(left({y, silu(inner)}), 2);
  EXPECT_EQ(left({y, inner}), 2);
  EXPECT_EQ(left({linear(silu(inner), w("w2", {6, 6}))}), 2);
  EXPECT_EQ(left({linear(round(inner, DType::BF16), w("w2", {6, 6}))}), 2);
  EXPECT_EQ(left({linear(materialize(inner), w("w2", {6, 6}))}), 2);
}

// A residual that is computed for this sum alone would have to be stored for the new layer.
TEST_F(ComposeLayers, NotWhereTheResidualIsNotStored) {
  const Expr inner = linear(in("h", {5, 24}), w("w1", {6, 24}));
  EXPECT_EQ(left({linear(inner + silu(in("r", {5, 6})), w("w2", {6, 6}))}), 2);
}

TEST_F(ComposeLayers, NotQuantizedOrChangingWeights) {
  const Expr h = in("h", {5, 24}), quantized = cast(w("q", {6, 24}, DType::E4M3), DType::F32) * w("s", {6, 1});
  EXPECT_EQ(left({linear(linear(h, quantized), w("w2", {6, 6}))}), 2);
  EXPECT_EQ(left({linear(cast(linear(h, w("w1", {6, 24})), DType::E4M3), w("w2", {6, 6}))}, 1), 2);
  EXPECT_EQ(left({linear(linear(h, in("w1", {6, 24})), w("w2", {6, 6}))}), 2);
}

TEST_F(ComposeLayers, PlannedWhereLaunchesCostMuch) {
  std::vector<Result> results;
  for (const Expr& e : residual_layers(DType::F16)) results.push_back({"y" + std::to_string(results.size()), e});
  PlanOptions o;
  const auto products = [&] {
    const Plan p = make_plan(results, o);
    int n = 0;
    for (const Launch& l : p.phase(Rate::Step)->launches) n += l.skeleton == "gemm";
    return n;
  };
  EXPECT_EQ(products(), 2);
  o.target.launch_bytes = int64_t{2} << 20;
  EXPECT_EQ(products(), 1);
  const Plan p = make_plan(results, o);
  for (const Launch& l : p.phase(Rate::Constant)->launches) EXPECT_TRUE(p.stored(l)) << l.name;
  o.fold_scales = false;
  EXPECT_EQ(products(), 2);
}

}  // namespace
}  // namespace tenon
