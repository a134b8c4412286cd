// Cost of a step of Z-Image: launches per block, also as golden text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/explain/plan_counts.h"
#include "tenon/kernels/form.h"
#include "tenon/kernels/view_facts.h"
#include "tenon/models/z_image.h"
#include "tenon/pipelines/families/z_image/networks.h"
#include "tenon/plan/plan.h"
#include "tests/plan/golden.h"

namespace tenon {
namespace {

// 1024 x 1024 pixels and 128 tokens of text, at full width.
Plan plan_of_z_image(int64_t layers, const PrecisionPolicy& policy, const Target& target = {}) {
  ZImageConfig c;
  c.layers = layers;
  c.refiners = 1;
  Graph g;
  PlanOptions o;
  o.name = "transformer";
  o.precision = policy;
  o.target = target;
  const Expr out = z_image(g, c, {.tokens = 128, .timesteps = 8}, nn::kBf16);
  return make_plan(std::array{Result{"direction", out}}, o);
}

// The lines of a plan's step phase.
std::string step_of(const Plan& plan) {
  const std::string all = summary(plan);
  return all.substr(all.find("phase step"));
}

TEST(ZImagePlan, ABlockCostsTheSameAtAnyDepth) {
  Target views;  // like a GPU's kernels: they read tensors, through views at most
  views.reads = [](const Form& form, size_t hole) { return is_view_chain(form.holes[hole]); };
  for (const Target& target : {Target(), views})
    for (const auto& [policy, most] : {std::pair{PrecisionPolicy(), 8}, {z_image_e4m3_rows(), 10}}) {
      const auto launches = [&, &policy = policy](int64_t layers) {
        return counts_of(plan_of_z_image(layers, policy, target)).total;
      };
      const int two = launches(2), three = launches(3), five = launches(5);
      EXPECT_EQ(five - three, 2 * (three - two)) << policy.text();
      EXPECT_LE(three - two, most) << policy.text();
      EXPECT_LE(two - 2 * most, 13) << policy.text();  // a refiner, patches, the final layer, and what these read
    }
}

TEST(ZImagePlan, Golden) {
  expect_golden("z_image_bf16.txt", step_of(plan_of_z_image(1, {})));
  expect_golden("z_image_e4m3.txt", step_of(plan_of_z_image(1, z_image_e4m3_rows())));
}

// Layers that do not tolerate eight bits keep their type, and the plan says so.
TEST(ZImagePlan, SensitiveLayersStayInBf16) {
  const Plan p = plan_of_z_image(2, z_image_e4m3_rows());
  EXPECT_EQ(print_plan(p).find("e4m3 rows, bf16: t_embedder, bf16: cap_embedder"), print_plan(p).find("e4m3 rows,"));
  const std::string text = summary(p);
  size_t quantised = 0;
  for (size_t at = 0; (at = text.find("[linear<e4m3>]", at)) != text.npos; ++at) ++quantised;
  EXPECT_EQ(quantised, 2U * 4);  // only q|k|v, output, w1|w3 and w2 of the main blocks
}

}  // namespace
}  // namespace tenon
