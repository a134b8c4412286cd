// Sandwich norms on any target, and on one whose kernels read tensors only.
#include "tests/plan/sandwich.h"
#include "tenon/explain/parse_plan.h"
#include "tenon/kernels/form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/explain/explanation.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/kernels/view_facts.h"
#include "tests/plan/golden.h"

namespace tenon::sandwich {
namespace {

// Like a GPU's kernels: they read tensors, through views at most.
Target views_only() {
  Target t;
  t.reads = [](const Form& form, size_t hole) { return is_view_chain(form.holes[hole]); };
  return t;
}

TEST(SandwichNorms, EveryBlockCostsTheSame) {
  for (const Target& target : {Target{}, views_only()}) {
    std::vector<int> count;
    std::vector<int64_t> bytes;
    for (const int blocks : {2, 3, 5, 6}) {
      const Plan p = network(blocks, target);
      count.push_back(counts_of(p).total);
      bytes.push_back(bytes_moved(p));
    }
    EXPECT_EQ(count[3] - count[2], count[1] - count[0]);
    EXPECT_EQ(bytes[3] - bytes[2], bytes[1] - bytes[0]);
    EXPECT_EQ(count[1] - count[0], 10);
  }
}

TEST(SandwichNorms, GoldenPlans) {
  expect_golden("sandwich.txt", summary(network(2, {})));
  expect_golden("sandwich_views_only.txt", summary(network(2, views_only())));
  EXPECT_EQ(launches(network(6, views_only())).size(), 62u);
}

TEST(SandwichNorms, NormModulateQuantise) {
  Sandwich s;
  const Quantised h = quantise(s.modulate(s.norm("norm", s.tokens("x")), s.in("scale", {1, kDim}, DType::F32)));
  const Plan p = plan_of({{"y", s.quantised_linear("w", h, 256)}});
  ASSERT_EQ(launches(p).size(), 2u);
  EXPECT_EQ(sinks(launches(p)[0]), std::string("rows: ") + kScale + " " + kRow);
}

TEST(SandwichNorms, GateResidualNormModulateQuantise) {
  Sandwich s;
  const Expr gate = s.in("gate", {1, kDim}, DType::F32), scale = s.in("scale", {1, kDim}, DType::F32);
  const Expr x = cast(s.tokens("x") + tanh(gate) * s.norm("norm", s.tokens("o")), DType::BF16);
  const Expr f = s.quantised_linear("w", quantise(s.modulate(s.norm("next", x), scale)), kDim);
  const Expr y = s.quantised_linear("v", quantise(cast(x + s.norm("last", f), DType::BF16)), 256);
  const Plan p = plan_of({{"y", y}});
  ASSERT_EQ(launches(p).size(), 4u);
  EXPECT_EQ(sinks(launches(p)[0]), std::string("rows: bf16[1,4352,3840] ") + kScale + " " + kRow);
  EXPECT_EQ(sinks(launches(p)[2]), std::string("rows: ") + kScale + " " + kRow);
}

TEST(SandwichNorms, GateQuantise) {
  Sandwich s;
  const Expr h = silu(s.tokens("a", kInner)) * s.tokens("b", kInner);
  const Plan p = plan_of({{"y", s.quantised_linear("w2", quantise(h), kDim)}});
  ASSERT_EQ(launches(p).size(), 2u);
  EXPECT_EQ(sinks(launches(p)[0]), std::string("rows: ") + kScale + " e4m3[1,4352,10240]");
}

TEST(SandwichNorms, HeadNormRopeOfQueriesAndKeys) {
  Sandwich s;
  const Expr q = s.head_norm_rope("norm_q", s.tokens("q")), k = s.head_norm_rope("norm_k", s.tokens("k"));
  const Expr v = s.in("v", {1, kHeads, kTokens, kHead});
  for (const Target& target : {Target{}, views_only()}) {
    const Plan p = plan_of({{"y", attention(q, k, v, 0.1)}}, target);
    ASSERT_EQ(launches(p).size(), 2u);
    EXPECT_EQ(sinks(launches(p)[0]), "rows: bf16[1,30,4352,128] bf16[1,30,4352,128]");
  }
}

TEST(SandwichNorms, PermuteQuantise) {
  Sandwich s;
  const Expr heads = s.in("o", {1, kHeads, kTokens, kHead});
  const Expr o = reshape(permute(heads, {0, 2, 1, 3}), {1, kTokens, kDim});
  const Plan p = plan_of({{"y", s.quantised_linear("out", quantise(o), kDim)}});
  ASSERT_EQ(launches(p).size(), 2u);
  EXPECT_EQ(sinks(launches(p)[0]), std::string("rows: ") + kScale + " " + kRow);
}

TEST(SandwichNorms, TheReasonHasFigures) {
  const Plan p = network(2, {});
  std::vector<std::string> why;
  for (const Launch& l : launches(p))
    for (const Output& o : l.outputs) why.push_back(o.why);
  EXPECT_THAT(why, testing::Contains(testing::ContainsRegex(
                       "[0-9.]+ MB moved if it is stored, [0-9.]+ MB if 2 launches compute it")));
  EXPECT_THAT(why,
              testing::Contains("absmax of another tensor needs its whole rows, but a tile has only some columns"));
  EXPECT_EQ(print_plan(parse_plan(print_plan(p))), print_plan(p));
  EXPECT_THAT(explanation_text(explain(p, {}, 0)),
              testing::ContainsRegex("stored: t[0-9]+: [0-9.]+ MB moved if it is stored"));
}

// A number prints the same through any view.
TEST(Explained, ViewsOfNumbersAreLeftOut) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {8, 16});
  const Expr norm = x * rsqrt(mean(x * x) + 1e-5);
  const std::string text =
      explanation_text(explain(make_plan(std::vector<Result>{{"y", norm + flip(norm, 1)}}), {}, 0));
  EXPECT_THAT(text, testing::HasSubstr("flip(x; 1)"));
  EXPECT_THAT(text, testing::HasSubstr(" + 1e-05)"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("flip(1e-05")));
}

}  // namespace
}  // namespace tenon::sandwich
