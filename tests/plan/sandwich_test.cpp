// Sandwich norms on any target, and on one whose kernels read tensors only.
#include "tests/plan/sandwich.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/backend/backend.h"
#include "tenon/explain/explanation.h"
#include "tenon/explain/parse_plan.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/kernels/form.h"
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

// Everything between two anchors is one launch with exactly these sinks, the same on every target.
TEST(SandwichNorms, PartsOfABlock) {
  for (const Target& target : {Target{}, views_only(), make_backend("cpu")->target()}) {
    Sandwich s;
    std::string text;
    for (const Part& part : parts(s)) {
      const Plan p = plan_of({{"y", part.y}}, target);
      EXPECT_EQ(passes(p), part.passes) << part.name;
      text += part.name + "\n" + summary(p);
    }
    expect_golden("sandwich_parts.txt", text);
  }
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
