// Golden plans: a change in fusion shows as a difference in these files. After a change that is meant, run the test
// with TENON_UPDATE_GOLDEN=1 and read the diff before committing it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "tenon/expr/node_type.h"
#include "tenon/models/registry.h"
#include "tenon/models/vit.h"
#include "tenon/plan/plan.h"

namespace tenon {
namespace {

// One line a launch: skeleton, name, what is computed from what, in the order of the body.
std::string summary(const Plan& plan) {
  std::ostringstream out;
  for (const Phase& p : plan.phases) {
    out << "phase " << name_of(p.rate) << ": " << p.launches.size() << " launches\n";
    for (const Launch& l : p.launches) {
      out << l.skeleton << " " << l.name << ":";
      std::vector<Expr> roots;
      for (const Output& o : l.outputs) roots.push_back(o.value);
      for (const Expr& e : topological(roots))
        if (e->family() != Family::Leaf)
          out << (e->family() == Family::Anchor ? " [" : " ") << e->name()
              << (e->family() == Family::Anchor ? "]" : "");
      out << " ->";
      for (const Output& o : l.outputs) out << " " << name_of(o.value.dtype()) << o.value.shape().str();
      out << "\n";
    }
  }
  return out.str();
}

void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(TENON_SOURCE_DIR) + "/tests/golden/" + name;
  if (std::getenv("TENON_UPDATE_GOLDEN")) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream in(path);
  std::stringstream golden;
  golden << in.rdbuf();
  std::istringstream a(golden.str()), b(text);
  std::string x, y;
  for (int line = 1; std::getline(a, x) || !a.eof(); ++line) {
    if (!std::getline(b, y)) y.clear();
    ASSERT_EQ(x, y) << path << " line " << line;
  }
  ASSERT_EQ(golden.str(), text) << path;
}

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
  const PlanCounts c = p.counts();
  EXPECT_LE(c.total, 241);
  EXPECT_EQ(c.elementwise + c.concat + c.permute + c.upsample, 0);
  Graph h;
  const Plan apart = plan_of("unet", unet(h, model_preset("sd15").config.unet, guided_512(), nn::kBf16), false);
  EXPECT_LT(p.bytes(), apart.bytes() / 5);
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
  EXPECT_EQ(decode.counts().elementwise + decode.counts().concat + decode.counts().permute + decode.counts().upsample,
            0);
  Graph h;
  expect_golden("sd15_vae_encode.txt", summary(plan_of("encode", vae_encode(h, c, 1, 512, 512, nn::kBf16))));
}

const VitConfig& vit_preset(const std::string& name) {
  const auto& all = vit_presets();
  return std::find_if(all.begin(), all.end(), [&](const VitPreset& p) { return p.name == name; })->config;
}

// Five launches a block, the patch embedding with class token and positions, the last norm: nothing else in a step.
TEST(GoldenPlan, VisionTransformer) {
  const VitConfig& c = vit_preset("vit-g14");
  Graph g;
  const Plan p = plan_of("vit", vit(g, c, 8, 224, 224, nn::kBf16));
  expect_golden("vit_g14.txt", summary(p));
  const PlanCounts counts = p.counts();
  EXPECT_EQ(counts.total, 5 * c.depth + 2);
  EXPECT_EQ(counts.elementwise + counts.concat + counts.permute + counts.upsample, 0);
  Graph h;
  const Plan apart = plan_of("vit", vit(h, c, 8, 224, 224, nn::kBf16), false);
  EXPECT_LT(p.bytes(), apart.bytes() / 3);
  Graph k;
  const VitConfig& registers = vit_preset("vit-s14-reg");
  EXPECT_EQ(plan_of("vit", vit(k, registers, 1, 518, 518, nn::kF32)).counts().total, 5 * registers.depth + 2);
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
  EXPECT_GT(apart.counts().total, 5 * fused.counts().total);
  EXPECT_GT(apart.counts().elementwise, 100);
  EXPECT_GT(apart.bytes(), fused.bytes());
}

}  // namespace
}  // namespace tenon
