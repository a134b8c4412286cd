// Golden plans: a change in fusion shows up as a diff in these files. After an intended change, run the test with
// TENON_UPDATE_GOLDEN=1 and read the diff before committing it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tenon/explain/parse_plan.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/explain/plan_diff.h"
#include "tenon/expr/ops.h"
#include "tenon/models/registry.h"
#include "tenon/models/vit.h"
#include "tenon/plan/plan.h"
#include "tests/plan/golden.h"

namespace tenon {
namespace {

UNetShape guided_512() {
  UNetShape s;
  s.guided = true;
  s.timesteps = 20;
  return s;
}

Plan plan_of(const std::string& name, const Expr& value, bool fusion = true) {
  PlanOptions o;
  o.name = name;
  o.fusion = fusion;
  return make_plan(std::array{Result{"result", value}}, o);
}

TEST(GoldenPlan, UNet) {
  Graph g;
  const Plan p = plan_of("unet", unet(g, model_preset("sd15").config.unet, guided_512(), nn::kBf16));
  expect_golden("sd15_unet.txt", summary(p));
  const PlanCounts c = counts_of(p);
  EXPECT_LE(c.total, 241);
  EXPECT_EQ(c.elementwise + c.concat + c.permute + c.upsample, 0);
  Graph h;
  const Plan apart = plan_of("unet", unet(h, model_preset("sd15").config.unet, guided_512(), nn::kBf16), false);
  EXPECT_LT(bytes_moved(p), bytes_moved(apart) / 5);
}

TEST(GoldenPlan, TextEncoder) {
  Graph g;
  expect_golden("sd15_text.txt",
                summary(plan_of("text", clip_text(g, model_preset("sd15").config.text, 2, 77, nn::kBf16))));
}

TEST(GoldenPlan, Vae) {
  const VaeConfig& c = model_preset("sd15").config.vae;
  Graph g;
  const Plan decode = plan_of("decode", vae_decode(g, c, 1, 64, 64, nn::kBf16));
  expect_golden("sd15_vae_decode.txt", summary(decode));
  EXPECT_EQ(
      counts_of(decode).elementwise + counts_of(decode).concat + counts_of(decode).permute + counts_of(decode).upsample,
      0);
  Graph h;
  expect_golden("sd15_vae_encode.txt", summary(plan_of("encode", vae_encode(h, c, 1, 512, 512, nn::kBf16))));
}

const VitConfig& vit_preset(const std::string& name) {
  const auto& all = vit_presets();
  return std::find_if(all.begin(), all.end(), [&](const VitPreset& p) { return p.name == name; })->config;
}

// Five launches per block, the patch embedding with class token and positions, the last norm: nothing else in a step.
TEST(GoldenPlan, VisionTransformer) {
  const VitConfig& c = vit_preset("vit-g14");
  Graph g;
  const Plan p = plan_of("vit", vit(g, c, 8, 224, 224, nn::kBf16));
  expect_golden("vit_g14.txt", summary(p));
  const PlanCounts counts = counts_of(p);
  EXPECT_EQ(counts.total, 5 * c.depth + 2);
  EXPECT_EQ(counts.elementwise + counts.concat + counts.permute + counts.upsample, 0);
  Graph h;
  const Plan apart = plan_of("vit", vit(h, c, 8, 224, 224, nn::kBf16), false);
  EXPECT_LT(bytes_moved(p), bytes_moved(apart) / 3);
  Graph k;
  const VitConfig& registers = vit_preset("vit-s14-reg");
  EXPECT_EQ(counts_of(plan_of("vit", vit(k, registers, 1, 518, 518, nn::kF32))).total, 5 * registers.depth + 2);
}

TEST(GoldenPlan, ShowsWhichTensorIsAdded) {
  Graph g;
  const Shape shape{4, 16};
  const Expr a = input(g, "a", DType::F32, shape), b = input(g, "b", DType::F32, shape);
  const auto layer = [&](const Expr& x, const char* w) { return linear(x, param(g, w, DType::F32, {16, 16})); };
  const auto with = [&](const Expr& residual) { return summary(plan_of("plan", layer(a, "w.weight") + residual)); };
  EXPECT_NE(with(a), with(b));
  const Expr both = input(g, "both", DType::F32, {4, 32});
  EXPECT_NE(with(slice(both, -1, 0, 16)), with(slice(both, -1, 16, 32)));
  const Expr p = layer(a, "p.weight"), q = layer(b, "q.weight");
  const auto with_layers = [&](const Expr& x, const Expr& y) {
    return summary(plan_of("plan", layer(tanh(p) * q, "v.weight") + layer(x, "u.weight") * y));
  };
  EXPECT_NE(with_layers(p, q), with_layers(q, p));
}

TEST(GoldenPlan, TinyTextEncoderInFull) {
  Graph g;
  expect_golden("tiny_text.plan",
                print_plan(plan_of("text", clip_text(g, model_preset("tiny").config.text, 2, 77, nn::kF32))));
}

TEST(GoldenPlan, PrintsAndParses) {
  UNetShape s = guided_512();
  s.height = 8;
  s.width = 16;
  s.tokens = 7;
  Graph g;
  const Plan p = plan_of("unet", unet(g, model_preset("tiny").config.unet, s, nn::kF32));
  const std::string text = print_plan(p);
  const Plan back = parse_plan(text);
  EXPECT_EQ(print_plan(back), text);
  for (size_t i = 0; i < p.phases.size(); ++i)
    for (size_t j = 0; j < p.phases[i].launches.size(); ++j)
      EXPECT_EQ(p.phases[i].launches[j].settled, back.phases[i].launches[j].settled);
  EXPECT_EQ(diff_plans(p, back), "");
  size_t settled = 0, apart = 0;
  ASSERT_EQ(back.phases.size(), p.phases.size());
  for (size_t i = 0; i < p.phases.size(); ++i) {
    ASSERT_EQ(back.phases[i].launches.size(), p.phases[i].launches.size());
    for (size_t k = 0; k < p.phases[i].launches.size(); ++k) {
      const Launch &a = p.phases[i].launches[k], &b = back.phases[i].launches[k];
      EXPECT_EQ(a.settled, b.settled) << a.name;
      settled += a.settled.size();
      ASSERT_EQ(a.apart.size(), b.apart.size()) << a.name;
      for (size_t n = 0; n < a.apart.size(); ++n) {
        EXPECT_EQ(a.apart[n].kind, b.apart[n].kind);
        EXPECT_EQ(a.apart[n].into.size(), b.apart[n].into.size());
        apart += a.apart[n].into.size();
      }
    }
  }
  EXPECT_GT(settled, 20u);
  EXPECT_GT(apart, 20u);
}

TEST(GoldenPlan, PlanningTwiceGivesTheSamePlan) {
  Graph a, b;
  const UNetConfig& c = model_preset("tiny").config.unet;
  EXPECT_EQ(print_plan(plan_of("u", unet(a, c, guided_512(), nn::kBf16))),
            print_plan(plan_of("u", unet(b, c, guided_512(), nn::kBf16))));
}

TEST(GoldenPlan, WithoutFusionEveryNodeIsALaunch) {
  Graph g;
  const Plan fused = plan_of("u", unet(g, model_preset("tiny").config.unet, guided_512(), nn::kF32));
  Graph h;
  const Plan apart = plan_of("u", unet(h, model_preset("tiny").config.unet, guided_512(), nn::kF32), false);
  EXPECT_GT(counts_of(apart).total, 5 * counts_of(fused).total);
  EXPECT_GT(counts_of(apart).elementwise, 100);
  EXPECT_GT(bytes_moved(apart), bytes_moved(fused));
}

}  // namespace
}  // namespace tenon
