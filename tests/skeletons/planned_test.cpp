// Whole plans, launch by launch: values that the planner stores because no launch can compute them itself. The tensors
// are larger than what a launch may compute for itself (the lets of a form).
#include <algorithm>

#include "tenon/explain/plan_counts.h"
#include "tenon/expr/precision.h"
#include "tenon/expr/vjp.h"
#include "tenon/kernels/view_facts.h"
#include "tenon/nn/norm.h"
#include "tenon/nn/rotary.h"
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
  /// Plans `value`, EXPECTs the oracle's values for every launch alone and for all in sequence.
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
  /// The same with a policy, after which anchors multiply in these types; `lost`: total error relative to the largest
  /// value.
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
        const DType coarsest = t == DType::F32 && rounds_to_bf16(l) ? DType::BF16 : t;
        expect(l, {l.outputs[0].value.dtype(), coarsest, kCols, 10, t == DType::E4M3 ? kLostOfE4m3 : 0});
        for (auto& [name, made] : run(l)) tensors.insert_or_assign(name, std::move(made));
      }
    EXPECT_EQ(found, arithmetic) << print_plan(plan);
    const std::vector<double> want = Oracle(tensors).eval(value);
    EXPECT_TRUE(
        agreement(tenon::compare(tensors.at("y"), value.shape(), want, Tolerance{lost * largest_magnitude(want)})))
        << print_plan(plan);
  }
  // Whether the launch rounds what it computes before it multiplies: near a tie, f32 and f64 are then a step apart.
  static bool rounds_to_bf16(const Launch& l) {
    std::vector<Expr> values;
    for (const Output& o : l.outputs) values.push_back(o.value);
    return std::ranges::any_of(topological(values), [](const Expr& e) {
      return e.is<nodes::Cast>() && e.dtype() == DType::BF16 && !is_memory_leaf(e->in[0]);
    });
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

// Heads whose neighbours are rotated in pairs, after a norm per head: no view moves a number to another row.
TEST_F(Planned, ReductionsOfRowsThatAreSplitAndJoinedAgain) {
  const Shape heads{kRows, 4, kCols / 4}, pairs{kRows, 4, kCols / 8, 2};
  const Expr n = layer_norm(reshape(x(), heads));
  const auto both = [&](int64_t i) { return reshape(broadcast(slice(reshape(n, pairs), -1, i, i + 1), pairs), heads); };
  const auto table = [&](const char* name) { return made(input(g, name, DType::F32, {kRows, 1, kCols / 4})); };
  const Expr turned = n * table("cos") + both(1) * table("minus_sin_even") + both(0) * table("sin_odd");
  EXPECT_EQ(counts_of(make_plan(std::array{Result{"y", turned}})).total, 1);
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

TEST_F(Planned, ReductionsOfReductions) { expect_plan(sum(silu(mean(silu(layer_norm(x()))))) + 1.0); }

TEST_F(Planned, ReducedRowsAsAnOperandOfAProduct) {
  expect_plan(linear(mean(silu(layer_norm(x()))), weight("w", DType::F32, {8, 1})));
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

// Planned gradients of the launches of a Z-Image block, each launch against the oracle on what it reads: quantised rows
// through their three gates, everything else by the rounding of what it stores.
class BlockGradients : public Planned {
 protected:
  static constexpr int64_t kWidth = 3840;
  static constexpr double kEps = 1e-5;

  Expr leaf(const std::string& name, DType t, const Shape& s) { return made(input(g, name, t, s)); }
  Expr vector(const std::string& name, int64_t n) {
    tensors.emplace(name, random_tensor(DType::F32, {n}, static_cast<unsigned>(tensors.size())));
    return param(g, name, DType::F32, {n});
  }
  static Expr rms(const Expr& x, const Expr& w) { return nn::rms_norm(x, kEps, w, DType::BF16); }
  /// As read by the product after a gradient: `name`.q and `name`.scale.
  static void add_quantized(std::vector<Result>& to, const std::string& name, const Expr& gradient) {
    const QuantizedRows rows = quantize_rows(cast(gradient, DType::BF16));
    to.push_back({name + ".q", rows.q});
    to.push_back({name + ".scale", rows.scale});
  }

  static int64_t full_rows() { return runners().front().name.find("threads") == std::string::npos ? 133 : 4224; }

  /// The three gates for an output of e4m3 rows that is stored with its scales.
  static void expect_rows(const Launch& l, const Tensors& got, const std::map<std::string, std::vector<double>>& want,
                          const std::string& where) {
    QuantizedRowsComparison rows;
    for (const Output& o : l.outputs) {
      const bool scales = o.value.dtype() == DType::F32 && o.value.shape()[-1] == 1;
      if (o.value.dtype() != DType::E4M3 && !scales) continue;
      const std::vector<double> values = got.at(o.buffer).values();
      for (size_t i = 0; i < values.size(); ++i)
        scales ? rows.add_scale(values[i], want.at(o.buffer)[i]) : rows.add(values[i], want.at(o.buffer)[i]);
    }
    EXPECT_TRUE(rows.agrees()) << where << ": " << rows.text();
  }

  /// `terms`: length of the longest sum in a product. Returns the number of launches that quantise rows.
  int expect_gates(const std::vector<Result>& results, const char* policy = "operands", int64_t terms = kWidth) {
    PlanOptions options;
    options.precision = PrecisionPolicy::parse(policy);
    options.target.reads = [](const Form& form, size_t hole) { return is_view_chain(form.holes[hole]); };
    const Plan plan = make_plan(results, options);
    int quantising = 0;
    for (const Phase& p : plan.phases)
      for (const Launch& l : p.launches) {
        Oracle oracle(tensors);
        std::map<std::string, std::vector<double>> want;
        for (const Output& o : l.outputs) want[o.buffer] = oracle.eval(o.value);
        const bool e4m3 =
            std::ranges::any_of(l.outputs, [](const Output& o) { return o.value.dtype() == DType::E4M3; });
        quantising += e4m3;
        for (const Runner* runner : {&runners().front(), &runners().back()}) {
          Tensors got = runner->run(l, tensors);
          const std::string where = runner->name + ", " + l.name + " (" + l.skeleton + ")";
          if (e4m3) expect_rows(l, got, want, where);
          const bool product = static_cast<bool>(l.form->anchor);
          for (const Output& o : l.outputs)
            if (o.value.dtype() != DType::E4M3)
              compare(o, got.at(o.buffer), want[o.buffer],
                      {o.value.dtype(), product ? DType::F32 : DType::BF16, product ? terms : kWidth, 10,
                       product ? kLostOfE4m3 : 0},
                      where);
          if (runner != &runners().back()) continue;
          for (auto& [name, t] : got) tensors.insert_or_assign(name, std::move(t));
        }
      }
    return quantising;
  }

  // Between two layers: after the modulated norm (of y from the forward pass), next to the residual stream's own
  // gradient; then after gate * norm of h.
  void between_layers(int64_t rows) {
    const auto stream = [&](const char* name, DType t) { return leaf(name, t, {rows, kWidth}); };
    const Expr y = stream("y", DType::BF16), h = stream("h", DType::BF16);
    const Expr n = rms(y, vector("w2", kWidth)) * vector("factor", kWidth);
    const Expr dy = stream("dy", DType::F32) + gradients(n, stream("dn", DType::F32), std::array{y})[0];
    const Expr gated = rms(h, vector("w1", kWidth)) * vector("gate", kWidth);
    std::vector<Result> results{{"dx", dy}};
    add_quantized(results, "dh", gradients(gated, dy, std::array{h})[0]);
    EXPECT_GE(expect_gates(results), 1);
  }

  // After silu(a) * b, both from one product.
  void gate(int64_t rows, int64_t hidden) {
    const Expr both = leaf("both", DType::BF16, {rows, 2 * hidden});
    const Expr u = silu(slice(both, -1, 0, hidden)) * slice(both, -1, hidden, 2 * hidden);
    std::vector<Result> results;
    add_quantized(results, "d", gradients(u, leaf("du", DType::F32, {rows, hidden}), std::array{both})[0]);
    EXPECT_GE(expect_gates(results), 1);
  }

  // After the heads that attention reads: queries and keys normalised and rotated, values unchanged.
  void heads(int64_t rows, int64_t count) {
    constexpr int64_t kDepth = 128;
    const int64_t width = count * kDepth;
    const Expr qkv = leaf("qkv", DType::BF16, {1, rows, 3 * width});
    const nn::Rotary at{leaf("cos", DType::F32, {1, rows, 1, kDepth}), leaf("sin", DType::F32, {1, rows, 1, kDepth})};
    Expr d;
    for (int64_t i = 0; i < 3; ++i) {
      const Expr x = reshape(slice(qkv, -1, i * width, (i + 1) * width), {1, rows, count, kDepth});
      const Expr y = i < 2 ? nn::rotate_neighbours(rms(x, vector(numbered("w", i), kDepth)), at) : x;
      const Expr grad = leaf(numbered("d", i), DType::BF16, {1, count, rows, kDepth});
      const Expr part = gradients(permute(y, {0, 2, 1, 3}), grad, std::array{qkv})[0];
      d = d ? d + part : part;
    }
    std::vector<Result> results;
    add_quantized(results, "d", reshape(d, {rows, 3 * width}));
    EXPECT_GE(expect_gates(results), 1);
  }

  // After a product of quantised rows: the gradient's rows are quantised with the scales of the weights included.
  void product(int64_t rows, int64_t inputs) {
    const Expr x = leaf("x", DType::BF16, {rows, inputs}), w = weight("w", DType::BF16, {kWidth, inputs});
    const Expr y = linear(x, w), dy = leaf("dy", DType::F32, {rows, kWidth});
    EXPECT_GE(expect_gates({{"y", y}, {"dx", gradients(y, dy, std::array{x})[0]}}, "e4m3 rows"), 2);
  }
};

// 4224 tokens: a 1024 x 1024 picture with a text of 128 tokens. What takes fp64 long has fewer columns, and fewer rows
// with all columns. (An emulated GPU is slow, and has fewer rows everywhere.)
TEST_F(BlockGradients, ProductionSizeBetweenLayers) { between_layers(full_rows()); }
TEST_F(BlockGradients, ProductionSizeOfAGate) {
  gate(full_rows(), 1280);
  tensors.clear();
  gate(33, 10240);
}
TEST_F(BlockGradients, ProductionSizeOfHeads) {
  heads(full_rows(), 4);
  tensors.clear();
  heads(33, 30);
}
TEST_F(BlockGradients, ProductionSizeOfAProduct) { product(full_rows(), 64); }

TEST_F(BlockGradients, RowsThatLeaveATail) {
  between_layers(13);
  tensors.clear();
  gate(7, 200);
  tensors.clear();
  heads(5, 30);
  tensors.clear();
  product(13, 40);
}

// Attention's launch stores its log-sum-exp as it is.
TEST_F(Planned, StatisticsOfALogSumExp) {
  const Expr q = made(input(g, "q", DType::F32, {1, 4, 16, 8})), k = made(input(g, "k", DType::F32, {1, 4, 18, 8}));
  const Expr y = attention(q, k, k, 0.5), lse = attention_lse(y);
  expect_plan(y * mean(lse, ReduceOver::Inner) + lse);
}

TEST_F(Planned, AttentionOfQueriesMadeOfWeights) {
  const Expr w = weight("w", DType::F32, {4, 16}), k = made(input(g, "k", DType::F32, {1, 4, 18, 8}));
  const Expr y = attention(reshape(w / (sum(abs(w)) + 0.1), {1, 4, 2, 8}), k, k, 0.5);
  expect_plan(y + attention_lse(y));
}

// No launch yields these as statistics; rows of a transposed view do.
TEST_F(Planned, LargestOfImages) {
  const Expr image = made(input(g, "image", DType::BF16, {2, 13, 17, 24}));
  expect_plan(image / (absmax(image, ReduceOver::Inner) + 0.1) + reduce_max(silu(image), ReduceOver::Inner));
}

TEST_F(Planned, StatisticsOfWhatReducesRows) {
  const Expr image = reshape(layer_norm(x()), {4, 8, 4, kCols});
  expect_plan(sum(image, ReduceOver::Inner));
}

}  // namespace
}  // namespace tenon::launches
