// The gradients of attention on every device: anchors if it has a kernel for them, otherwise products.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "tenon/expr/ops.h"
#include "tenon/expr/vjp.h"
#include "tests/planned/check.h"
#include "tests/support/sanitized.h"

namespace tenon::planned {
namespace {

struct Heads {
  int64_t batch, heads, kv_heads, queries, keys, depth;
  bool causal, counted = false;  // counted: the number of keys per batch entry is in memory

  // Whether one kernel computes all gradients.
  bool of_all() const { return depth > 64 && depth <= 128 && !causal; }
};

// q, k and v in a layer's layout, tokens by heads, and the gradient of heads that are joined again.
Program gradients_of(const Heads& h, DType t) {
  Program out{std::make_shared<Graph>(), {}};
  Graph& g = *out.graph;
  const auto by_heads = [&](const char* name, DType type, int64_t tokens, int64_t heads) {
    const Expr x = input(g, name, type, {h.batch, tokens, heads * h.depth});
    return permute(reshape(x, {h.batch, tokens, heads, h.depth}), {0, 2, 1, 3});
  };
  const Expr q = by_heads("q", t, h.queries, h.heads), k = by_heads("k", t, h.keys, h.kv_heads),
             v = by_heads("v", t, h.keys, h.kv_heads), seed = by_heads("g", DType::F32, h.queries, h.heads);
  const Expr there = h.counted ? input(g, "index" + std::to_string(h.keys), DType::I32, {h.batch}) : Expr();
  const Expr y = attention(q, k, v, 1 / std::sqrt(static_cast<double>(h.depth)), h.causal, there);
  const std::vector<Expr> grads = gradients(y, seed, std::array{q, k, v});
  out.results = {{"y", y}, {"dq", grads[0]}, {"dk", grads[1]}, {"dv", grads[2] * 2.0}};
  return out;
}

int anchors_of(const Program& program, const PlanOptions& options) {
  int n = 0;
  for (const Phase& p : make_plan(program.results, options).phases)
    for (const Launch& l : p.launches) n += l.skeleton == "attention_gradient";
  return n;
}

void expect_everywhere(const Heads& h, DType t) {
  const Program program = gradients_of(h, t);
  for (const Device& device : devices()) {
    SCOPED_TRACE(device.name + " " + std::string(name_of(t)) + " " + program.results[1].value.shape().str() + " keys " +
                 std::to_string(h.keys) + (h.causal ? " causal" : "") + (h.counted ? " counted" : ""));
    PlanOptions options;
    options.precision = {t == DType::F32   ? PrecisionPolicy::Rule::Operands
                         : t == DType::F16 ? PrecisionPolicy::Rule::F16
                                           : PrecisionPolicy::Rule::BF16};
    options.target = device.backend->target();
    const bool sm90 = (device.name + device.backend->describe()).find("sm_90a") != std::string::npos;
    EXPECT_EQ(anchors_of(program, options), !sm90 || t == DType::F32 ? 0 : h.of_all() ? 1 : 2);
    const Finding found = check_run(program, options, device);
    EXPECT_FALSE(found) << found.what;
  }
}

TEST(AttentionGradient, MeansTheSameTakenApart) {
  for (const Heads& h :
       {Heads{2, 4, 2, 9, 13, 8, false}, Heads{2, 4, 2, 9, 13, 8, true}, Heads{3, 4, 2, 9, 13, 8, true, true}}) {
    const Program program = gradients_of(h, DType::F32);
    EXPECT_EQ(anchors_of(program, {}), 0);
    PlanOptions whole, recomputed;
    whole.target.runs = [](const Expr&) { return true; };
    recomputed.target.runs = [](const Expr& e) { return !e.is<nodes::AttentionQuerySums>(); };
    EXPECT_EQ(anchors_of(program, whole), 1);
    EXPECT_EQ(anchors_of(program, recomputed), 2);
    for (const PlanOptions& options : {PlanOptions{}, whole, recomputed}) {
      const Finding found = check_meaning(program, options);
      EXPECT_FALSE(found) << found.what;
    }
  }
}

// The gradient of queries is a second result of that of keys: without it, a launch of its own computes it.
TEST(AttentionGradient, OfQueriesAlone) {
  Program program = gradients_of({1, 2, 2, 64, 64, 128, false}, DType::BF16);
  std::erase_if(program.results, [](const Result& r) { return r.name == "dk" || r.name == "dv"; });
  PlanOptions options;
  options.target.runs = [](const Expr&) { return true; };
  EXPECT_EQ(anchors_of(program, options), 1);
  EXPECT_NE(print_plan(make_plan(program.results, options)).find("attention_query_gradient"), std::string::npos);
}

TEST(AttentionGradient, ShapesAndTypes) {
  for (const Heads& h : {Heads{1, 2, 2, 130, 130, 64, false},
                         {2, 4, 2, 33, 65, 64, true},
                         {1, 2, 1, 150, 200, 128, true},
                         {1, 1, 1, 70, 70, 40, false},
                         {1, 1, 1, 65, 129, 80, true},
                         {1, 1, 1, 64, 100, 160, false},
                         {1, 2, 2, 136, 200, 128, false},
                         {2, 2, 2, 72, 136, 96, false},
                         {1, 2, 2, 132, 64, 128, false},
                         {3, 1, 1, 72, 300, 128, false, true},
                         {1, 4, 2, 200, 260, 80, false},
                         {2, 2, 2, 40, 500, 128, false, true},
                         {3, 1, 1, 72, 100, 128, false, true},
                         {3, 2, 1, 70, 200, 64, false, true},
                         {3, 1, 1, 70, 150, 40, true, true}}) {
    if (sanitized() && h.depth != 40) continue;  // other depths use other GPU kernels, which are not instrumented
    expect_everywhere(h, DType::BF16);
  }
  for (const DType t : {DType::F16, DType::F32}) expect_everywhere({1, 2, 1, 65, 80, 64, true}, t);
}

// The size for training on 1024 x 1024 pictures, and that of a text.
TEST(AttentionGradient, ProductionSizes) {
  if (!std::getenv("TENON_TEST_GPU_ONLY")) GTEST_SKIP() << "takes minutes where there is no GPU";
  expect_everywhere({1, 1, 1, 4224, 4224, 128, false}, DType::BF16);
  expect_everywhere({2, 14, 2, 384, 384, 64, true}, DType::BF16);
}

}  // namespace
}  // namespace tenon::planned
