// Rules of gradients at their edges: attention by some of its operands, types that are rounded and those that are not,
// paths that end, and tensors without elements.
#include <gtest/gtest.h>

#include <cmath>

#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/expr/vjp.h"
#include "tenon/oracle/oracle.h"
#include "tenon/runtime/executable.h"
#include "tests/planned/devices.h"
#include "tests/support/close.h"

namespace tenon {
namespace {

// Small whole numbers, which every type holds, determined by the leaf's first letter.
std::map<std::string, HostTensor> tensors_of(std::span<const Expr> values) {
  std::map<std::string, HostTensor> out;
  for (const Expr& leaf : topological(values)) {
    if (!is_memory_leaf(leaf)) continue;
    std::vector<float> x(static_cast<size_t>(leaf.shape().numel()));
    const double first = static_cast<double>(leaf->attrs.text.at(0));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(std::round(2 * std::sin(static_cast<double>(i * i) + first)));
    out.emplace(leaf->attrs.text, HostTensor::from(leaf.dtype(), leaf.shape(), x));
  }
  return out;
}

Plan plan_of(std::span<const Expr> values, const PlanOptions& options = {}) {
  std::vector<Result> results;
  for (const Expr& e : values) results.push_back({"r" + std::to_string(results.size()), e});
  return make_plan(results, options);
}

// Plans the values and computes them on every device.
void expect_everywhere(std::span<const Expr> values, double tolerance, const PlanOptions& options = {}) {
  const std::map<std::string, HostTensor> tensors = tensors_of(values);
  const Plan plan = plan_of(values, options);
  HostWeights weights;
  for (const auto& [name, t] : tensors) weights.add(name, {t.dtype, t.shape, t.data.data()});
  Oracle oracle(tensors);
  for (const planned::Device& device : planned::devices()) {
    Executable executable(plan, device.backend, weights);
    for (const Buffer& b : plan.buffers)
      if (b.role == BufferRole::Input) executable.set(b.name, weights.find(b.name));
    executable.run_all();
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(close_to_largest(executable.get("r" + std::to_string(i)), oracle.eval(values[i]), tolerance))
          << device.name << ": result " << i;
  }
}

// q, k and v of attention, the gradient of its result, and the gradients.
struct Attended {
  Graph g;
  std::vector<Expr> in;
  Expr seed, y;
  Attended(const std::array<DType, 3>& types, bool params = false, bool causal = false) {
    const char* names[] = {"q", "k", "v"};
    for (size_t i = 0; i < 3; ++i) {
      const Shape shape{1, 2, i ? 7 : 5, 8};
      in.push_back(params ? param(g, names[i], types[i], shape) : input(g, names[i], types[i], shape));
    }
    y = attention(in[0], in[1], in[2], 0.3, causal);
    seed = input(g, "seed", DType::F32, y.shape());
  }
  std::vector<Expr> gradients() const { return tenon::gradients(y, seed, in); }
};

std::array<DType, 3> all(DType t) { return {t, t, t}; }

TEST(AttentionRules, ByOneOperandAlone) {
  for (const DType t : {DType::F32, DType::BF16})
    for (const bool causal : {false, true})
      for (size_t i = 0; i < 3; ++i) {
        SCOPED_TRACE(std::string(name_of(t)) + " operand " + std::to_string(i) + (causal ? " causal" : ""));
        const Attended a(all(t), false, causal);
        const std::vector<Expr> one{a.gradients()[i]};
        expect_everywhere(one, t == DType::F32 ? 1e-5 : 0.02);
        for (const Buffer& b : plan_of(one).buffers) EXPECT_NE(b.shape[-1], 16) << "the other's gradient is stored too";
      }
}

TEST(AttentionRules, TheLogSumExpAlone) {
  for (const DType t : {DType::F32, DType::BF16}) {
    Attended a(all(t));
    const Expr lse = attention_lse(a.y), seed = input(a.g, "g", DType::F32, lse.shape());
    expect_everywhere(std::vector{lse * 2.0 + 1.0}, 1e-5);
    expect_everywhere(gradients(lse, seed, a.in), 1e-5);
    for (const PlanOptions& options : {PlanOptions{}, {.fusion = false}, {.anchors_alone = true}})
      expect_everywhere(std::vector{lse}, 1e-5, options);
  }
}

// Gradients are rounded to 16 bits only where values are, weights' never.
TEST(AttentionRules, RoundsNothingElse) {
  const Attended exact(all(DType::F32));
  const std::vector<Expr> wanted = exact.gradients();
  const auto expect = [&](const Attended& a, std::initializer_list<size_t> operands) {
    const std::vector<Expr> got = a.gradients();
    for (const size_t i : operands)
      EXPECT_TRUE(
          close_to_largest(Oracle(tensors_of(got)).eval(got[i]), Oracle(tensors_of(wanted)).eval(wanted[i]), 1e-9))
          << name_of(a.in[0].dtype()) << ", " << name_of(a.in[2].dtype()) << ": operand " << i;
  };
  expect(Attended({DType::I16, DType::I16, DType::F32}), {0, 1, 2});
  expect(Attended({DType::BF16, DType::BF16, DType::F32}), {0, 1, 2});
  expect(Attended(all(DType::BF16), true), {2});  // others read the rounded result
}

TEST(AttentionRules, InADeclaredArithmetic) {
  const Attended a(all(DType::BF16));
  const Expr y = multiplied_in(a.y, DType::BF16);
  expect_everywhere(gradients(y, a.seed, a.in), 0.02);
  expect_everywhere(gradients(y * y, {}, a.in), 0.02);
}

// Gradients of gradients put operands into places of their own, whatever the caller's are called.
TEST(AttentionRules, NamesOfTheCallersInputs) {
  std::vector<std::vector<double>> of_q;
  for (const char* name : {"operand 0", "other"}) {
    Graph g;
    const Shape shape{1, 1, 4, 8};
    const Expr q = input(g, "q", DType::F32, shape), k = input(g, "k", DType::F32, shape),
               x = input(g, name, DType::F32, shape);
    const Expr first = gradients(attention(q, k, k, 0.3), {}, std::array{k})[0];
    const Expr second = gradients(first, x, std::array{q})[0];
    of_q.push_back(Oracle(tensors_of(std::array{second})).eval(second));
  }
  EXPECT_TRUE(close_to_largest(of_q[0], of_q[1], 1e-12));
}

// What is behind a stop, or an integer, needs no rule.
TEST(Paths, EndWhereNoGradientFlows) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {2, 9}), st = state(g, "st", DType::F32, {6, 9}),
             i = input(g, "i", DType::I32, {2}), w = param(g, "w", DType::F32, {3, 9});
  const Expr written = update_rows(st, i, stop_gradient(x * 2.0));
  const Expr drawn = sample(stop_gradient(x), input(g, "rule", DType::F32, {2, 4}),
                            input(g, "bits", DType::I32, {2, 4}), input(g, "count", DType::I32, {2}));
  const Expr stored = update_rows(st, i, cast(cast(x, DType::I32), DType::F32));
  for (const Expr& y : {sum(linear(written, w)), sum(drawn), sum(linear(stored, w))}) {
    const Expr loss = sum(reshape(y, {1, y.shape().numel()})), mean = sum(reshape(x * x, {1, 18}));
    const Expr got = gradients(loss + mean, {}, std::array{x})[0], want = gradients(mean, {}, std::array{x})[0];
    Oracle oracle(tensors_of(std::array{got, want}));
    EXPECT_TRUE(close_to_largest(oracle.eval(got), oracle.eval(want), 1e-12));
  }
  EXPECT_EQ(gradients(stop_gradient(x), {}, std::array{stop_gradient(x)})[0].shape(), x.shape());
}

TEST(EmptyTensors, OfProductsAndConvolutions) {
  Graph g;
  const auto expect = [](const Expr& y, const std::array<Expr, 2>& in) {
    const std::vector<Expr> got = gradients(y, {}, in);
    static_cast<void>(plan_of(got));
    for (size_t i = 0; i < in.size(); ++i)
      for (const double x : Oracle(tensors_of(got)).eval(got[i])) EXPECT_EQ(x, 0) << in[i]->attrs.text;
  };
  for (const auto& [rows, width, columns] : {std::array{3, 0, 4}, std::array{0, 5, 4}, std::array{3, 5, 0}}) {
    const Expr x = input(g, "x", DType::F32, {rows, width}), w = param(g, "w", DType::F32, {columns, width});
    expect(linear(x, w), {x, w});
  }
  const Expr x = input(g, "x", DType::F32, {1, 0, 4, 3}), w = param(g, "w", DType::F32, {2, 3, 3, 3});
  expect(conv2d(x, w, 1, {2, 1, 2, 1}), {x, w});
  const Expr image = input(g, "x", DType::F32, {1, 4, 4, 3}), none = param(g, "w", DType::F32, {2, 3, 0, 0});
  expect(conv2d(image, none, 1), {image, none});
}

// However many there are: one concatenation, not one within the other.
TEST(AdjacentSlices, OfManyParts) {
  Graph g;
  const int64_t n = 1100;
  const Expr x = input(g, "x", DType::F32, {n, 8}), rows = x * 2.0;
  Expr y;
  for (int64_t i = 0; i < n; ++i) {
    const Expr part = slice(rows, 0, i, i + 1) * slice(rows, 0, i, i + 1);
    y = y ? y + part : part;
  }
  const std::vector<Expr> got = gradients(y, {}, std::array{x});
  for (const Expr& e : topological(got))
    for (const Expr& part : e->in) EXPECT_FALSE(e.is<nodes::Concat>() && part.is<nodes::Concat>());
  EXPECT_NE(print_plan(plan_of(got)).find("concat"), std::string::npos);
}

}  // namespace
}  // namespace tenon
