// How a step's time is spent: kernels grouped into launches, overlaps counted once, parts that add up.
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "tenon/core/error.h"
#include "tenon/explain/profile.h"
#include "tenon/expr/ops.h"

namespace tenon {
namespace {

Explanation three_launches() {
  Explanation e;
  e.rate = Rate::Step;
  for (const auto& [name, skeleton, kernels] :
       {std::tuple{"layers.0.norm", "rows", 1}, {"layers.0.w", "gemm", 2}, {"t7", "map", 1}}) {
    ExplainedLaunch l;
    l.name = name;
    l.skeleton = skeleton;
    l.kernels = kernels;
    e.launches.push_back(l);
  }
  return e;
}

double sum(const std::vector<ProfiledTime>& times) {
  double out = 0;
  for (const ProfiledTime& t : times) out += t.seconds;
  return out;
}

const ProfiledTime& named(const std::vector<ProfiledTime>& times, const std::string& name) {
  return *std::ranges::find(times, name, &ProfiledTime::name);
}

TEST(Profile, KernelsThatOverlapAreCountedOnceAndAllAddsUp) {
  const Explanation e = three_launches();
  // The product's second kernel begins while its first runs; nothing runs from 8 to 9; a copy from 11 to 12.
  const std::vector<DeviceWork> work{
      {.begin = 1, .end = 3}, {.begin = 2, .end = 6}, {.begin = 5, .end = 8}, {.begin = 9, .end = 11}, {true, 11, 12}};
  const Profile p = make_profile(e, {step_of(work, e)});
  EXPECT_DOUBLE_EQ(p.seconds, 11);
  EXPECT_DOUBLE_EQ(named(p.times, "layers.0.norm").seconds, 2);
  EXPECT_DOUBLE_EQ(named(p.times, "layers.0.w").seconds, 5) << "from where the norm ended";
  EXPECT_DOUBLE_EQ(named(p.times, "t7").seconds, 2);
  EXPECT_EQ(named(p.times, "t7").layer, "layers.0");
  EXPECT_DOUBLE_EQ(named(p.classes, "idle").seconds, 1);
  EXPECT_DOUBLE_EQ(named(p.classes, "copy").seconds, 1);
  EXPECT_EQ(named(p.classes, "product").kernels, 2);
  EXPECT_DOUBLE_EQ(named(p.layers, "layers.0").seconds, 9);
  EXPECT_DOUBLE_EQ(sum(p.classes), p.seconds);
  EXPECT_DOUBLE_EQ(sum(p.layers), p.seconds);
}

TEST(Profile, ALaunchHasTheRooflineOfWhatItMultipliesIn) {
  Roofline peak;
  peak.copied = 100;
  peak.read = 200;
  peak.operations = {{DType::BF16, 1000}, {DType::E4M3, 2000}};
  ExplainedLaunch l;
  l.flops = 1000;
  l.bytes = 100;
  l.seconds = 1;
  EXPECT_DOUBLE_EQ(roofline_share(l, peak), 0.5) << "a launch without an anchor, by the faster way to memory";
  l.arithmetic = DType::BF16;
  EXPECT_DOUBLE_EQ(roofline_share(l, peak), 1);
  l.arithmetic = DType::E4M3;
  EXPECT_DOUBLE_EQ(roofline_share(l, peak), 0.5);
}

TEST(Profile, LaunchesThatWriteAStateBelongToTheLayerAroundThem) {
  Explanation e;
  for (const char* name : {"layers.3.qkv", "cache.3.k", "t5.attention", "layers.3.o_proj"}) {
    ExplainedLaunch l;
    l.name = name;
    l.skeleton = "map";
    e.launches.push_back(l);
  }
  for (const char* name : {"cache.3.k", "cache.3.v"}) e.buffers.push_back({name, "f32[8]", BufferRole::State});
  MeasuredStep s;
  for (int i = 0; i < 4; ++i) s.launches.push_back({.begin = 1.0 * i, .end = i + 1.0});
  const Profile p = make_profile(e, {s});
  ASSERT_EQ(p.layers.size(), 2U) << "the layer and idle time";
  EXPECT_DOUBLE_EQ(named(p.layers, "layers.3").seconds, 4);
}

// As in the arena: what only a slower phase uses is dead after its last reader there.
TEST(Profile, BuffersLiveAsLongAsInTheMemoryPlan) {
  Graph g;
  const auto weight = [&g](const char* name) { return param(g, name, DType::F32, {16, 16}); };
  const Expr prompt = input(g, "prompt", DType::F32, {4, 16}, Rate::Prompt), x = input(g, "x", DType::F32, {4, 16});
  const Expr once = linear(linear(linear(prompt, weight("a")), weight("b")), weight("c"));
  const std::array results{Result{"y", linear(linear(x, weight("d")) + once, weight("e"))}};
  const Plan plan = make_plan(results, PlanOptions{});
  const Explanation e = explain(plan, {}, 0);
  const auto end = static_cast<int>(e.launches.size()) - 1;
  std::map<std::string, int> last;
  for (const ExplainedBuffer& b : e.buffers) last[b.name] = b.last;
  int within = 0, until_the_end = 0;
  for (const Buffer& b : plan.buffers)
    if (b.role == BufferRole::Temporary && b.rate == Rate::Prompt) ++(last.at(b.name) == end ? until_the_end : within);
  EXPECT_EQ(within, 2) << "read by the next product of the prompt";
  EXPECT_EQ(until_the_end, 1) << "read in every step";
}

TEST(Profile, TheMedianRunIsShown) {
  const Explanation e = three_launches();
  std::vector<MeasuredStep> runs;
  for (const double factor : {5.0, 1.0, 3.0}) {
    MeasuredStep s;
    for (int i = 0; i < 3; ++i) s.launches.push_back({.begin = i * factor, .end = (i + 1) * factor});
    runs.push_back(s);
  }
  EXPECT_DOUBLE_EQ(make_profile(e, runs).seconds, 9);
}

TEST(Profile, KernelsThatThePlanDoesNotHaveAreRefused) {
  const Explanation e = three_launches();
  const std::vector<DeviceWork> work(5, DeviceWork{.begin = 0, .end = 1});
  EXPECT_THROW(step_of(work, e), Error);
}

}  // namespace
}  // namespace tenon
