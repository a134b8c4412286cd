// Memory of full-size networks on an H200 with offloaded weights: only planned, nothing is allocated.
#include <gtest/gtest.h>

#include "tenon/pipelines/model_parts.h"
#include "tenon/runtime/plan_kernels.h"
#include "tests/target/h200.h"

namespace tenon::offload_target {
namespace {

constexpr int64_t kGB = 1'000'000'000;

MemoryPlan memory_of(const ModelParts& model, const std::string& part, bool e4m3, std::optional<Offload> offload = {}) {
  PartRequest r;
  r.width = r.height = 1024;
  NetworkOptions o;
  o.precision = nn::kBf16;
  if (e4m3) o.policy = NetworkType(DType::E4M3).policy;
  o.target = target::h200()->target();
  return plan_memory(model.plan(part, r, o), target::h200(), offload);
}

TEST(OffloadTarget, ZImageInTenGigabytes) {
  const auto model = open_parts("random:z-image");
  for (const bool e4m3 : {false, true}) {
    SCOPED_TRACE(e4m3 ? "e4m3" : "bf16");
    int64_t kept = 0;  // by networks that run once per picture, if all are ready at once
    for (const char* part : {"text", "vae-decode"}) {
      SCOPED_TRACE(part);
      const MemoryPlan whole = memory_of(*model, part, e4m3);
      const MemoryPlan least = memory_of(*model, part, e4m3, Offload{.bytes = 10 * kGB, .all = true});
      EXPECT_EQ(least.total(), least.least);
      EXPECT_EQ(least.arena, whole.arena);
      EXPECT_EQ(least.weights + least.host, whole.weights);
      kept += least.total();
    }
    const MemoryPlan whole = memory_of(*model, "transformer", e4m3);
    for (const int64_t room : {10 * kGB, 10 * kGB - kept}) {  // ready one at a time, or with the others
      const MemoryPlan m = memory_of(*model, "transformer", e4m3, Offload{.bytes = room});
      EXPECT_LE(m.total(), room);
      EXPECT_EQ(m.weights + m.host, whole.weights);
      EXPECT_LT(m.staging, kGB / 4);
      EXPECT_LT(m.least, kGB);
      EXPECT_EQ(m.host > 0, whole.total() > room);
      if (m.host > 0) {
        EXPECT_GT(m.total(), room - kGB / 8) << "no more waits than has to";
      }
    }
  }
}

}  // namespace
}  // namespace tenon::offload_target
