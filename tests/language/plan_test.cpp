// Plans of language models: launches per layer, and explanations of them.
#include <gmock/gmock.h>

#include "tenon/explain/explanation.h"
#include "tenon/explain/parse_plan.h"
#include "tenon/models/decoder.h"
#include "tenon/pipelines/decoder_plans.h"
#include "tenon/pipelines/networks.h"
#include "tenon/pipelines/text_generator.h"
#include "tenon/runtime/executable.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon {
namespace {

int64_t launches(const std::string& preset, int64_t layers, int64_t tokens, bool fusion = true) {
  DecoderConfig c;
  for (const DecoderPreset& p : decoder_presets())
    if (p.name == preset) c = p.config;
  c.layers = layers;
  DecoderShape s;
  s.tokens = tokens;
  NetworkOptions options;
  options.fusion = fusion;
  const Plan plan = plan_decoder(c, s, options);
  const std::shared_ptr<Backend> nothing = make_backend("null");
  const PlanKernels made(plan, WeightStore(nothing, nullptr));
  const Explanation e = explain(plan, made.memory, 0);
  EXPECT_FALSE(explanation_text(e).empty());
  EXPECT_EQ(print_plan(parse_plan(print_plan(plan))), print_plan(plan));
  return static_cast<int64_t>(plan.phases.back().launches.size());
}

// A layer: norm and q, k, v; writing both caches, with keys rotated; rotated queries and attention; output projection
// and residual; norm, gate and up; down and residual. Normalised heads of many tokens are a separate launch.
TEST(LanguagePlans, SixLaunchesALayer) {
  for (const char* preset : {"qwen2.5-0.5b", "smollm2-135m", "qwen3-0.6b"})
    for (const int64_t tokens : {1, 64}) {
      const int64_t want = preset == std::string("qwen3-0.6b") && tokens > 1 ? 7 : 6;
      EXPECT_EQ(launches(preset, 5, tokens) - launches(preset, 4, tokens), want) << preset << " " << tokens;
      EXPECT_GT(launches(preset, 3, tokens, false) - launches(preset, 2, tokens, false), 30);
    }
}

}  // namespace
}  // namespace tenon
