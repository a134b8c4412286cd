// What the planner absorbs, hoists, merges and refuses, on graphs small enough to read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/backend/forms.h"
#include "tenon/core/error.h"
#include "tenon/explain/parse_plan.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/kernels/form.h"
#include "tenon/models/registry.h"
#include "tenon/plan/one_launch.h"
#include "tenon/plan/plan.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

Plan plan_of(const Expr& value, PlanOptions o = {}) { return make_plan(std::array{Result{"y", value}}, o); }
const Launch& step(const Plan& p, size_t i) { return p.phase(Rate::Step)->launches.at(i); }

TEST(Planner, AbsorbsMathsOnBothSidesOfAnAnchor) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 32}), r = input(g, "r", DType::F32, {4, 16});
  const Plan p = plan_of(cast(
      gelu(linear(silu(x), param(g, "w", DType::F32, {16, 32})) + param(g, "b", DType::F32, {16})) + r, DType::BF16));
  ASSERT_EQ(counts_of(p).total, 1);
  EXPECT_EQ(step(p, 0).skeleton, "gemm");
  EXPECT_EQ(p.buffer("y").dtype, DType::BF16);
}

TEST(Planner, GatesShareTheTile) {
  Graph g;
  const Expr h = linear(input(g, "x", DType::F32, {4, 32}), param(g, "w", DType::F32, {64, 32}));
  const Plan p = plan_of(slice(h, -1, 0, 32) * gelu(slice(h, -1, 32, 64)));
  EXPECT_EQ(counts_of(p).total, 1);
}

// Interleaved rotary position embedding: pairs of neighbours are rotated by angles whose cosines and sines are stored
// for both.
Expr rotated(const Expr& x) {
  Graph& g = x.graph();
  const Shape table = {x.shape()[-2], x.shape()[-1]};
  return x * input(g, "cos", DType::F32, table) + pair_swap(x) * input(g, "sin", DType::F32, table);
}

TEST(Planner, InterleavedRotationsAreOneLaunch) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {1, 4, 8, 32}), y = input(g, "z", DType::BF16, {1, 4, 8, 32});
  const auto only = [](const Expr& value) {
    const Plan p = plan_of(value);
    EXPECT_EQ(counts_of(p).total, 1);
    return step(p, 0).skeleton;
  };
  EXPECT_EQ(only(cast(rotated(x), DType::BF16)), "map");
  EXPECT_EQ(only(cast(rotated(x * rsqrt(mean(x * x) + 1e-6) * param(g, "w", DType::BF16, {32})), DType::BF16)), "rows");
  EXPECT_EQ(only(linear(rotated(x), param(g, "v", DType::F32, {16, 32}))), "gemm");
  const auto turned = [](const Expr& e) { return cast(rotated(e), DType::BF16); };
  EXPECT_EQ(only(attention(turned(x), turned(y), y, 0.18, true)), "attention");
}

TEST(Planner, RotatedHeadsOfAProductAreReadByAttention) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {1, 8, 96});
  const Expr qkv = cast(linear(x, param(g, "w", DType::BF16, {288, 96})), DType::BF16);
  const auto head = [&](int i) {
    return permute(reshape(slice(qkv, -1, i * 96, i * 96 + 96), {1, 8, 3, 32}), {0, 2, 1, 3});
  };
  const auto turned = [](const Expr& e) { return cast(rotated(e), DType::BF16); };
  const Plan p = plan_of(attention(turned(head(0)), turned(head(1)), head(2), 0.18));
  ASSERT_EQ(counts_of(p).total, 2);
  EXPECT_EQ(step(p, 1).skeleton, "attention");
}

TEST(Planner, MergesSiblings) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {1, 8, 32});
  const auto head = [&](const char* w) {
    return permute(reshape(linear(x, param(g, w, DType::F32, {32, 32})), {1, 8, 2, 16}), {0, 2, 1, 3});
  };
  const Expr y = attention(head("q.weight"), head("k.weight"), head("v.weight"), 0.25);
  EXPECT_EQ(counts_of(plan_of(y)).total, 2);
  PlanOptions apart;
  apart.merge_siblings = false;
  EXPECT_EQ(counts_of(plan_of(y, apart)).total, 4);
}

TEST(Planner, SiblingsWithBiasesOfOtherTypesStayApart) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {1, 8, 32});
  const auto head = [&](const std::string& w, DType bias) {
    const Expr y = linear(x, param(g, w, DType::F32, {32, 32})) + param(g, w + ".b", bias, {32});
    return permute(reshape(y, {1, 8, 2, 16}), {0, 2, 1, 3});
  };
  const Expr y = attention(head("q", DType::BF16), head("k", DType::F32), head("v", DType::F32), 0.25);
  EXPECT_EQ(counts_of(plan_of(y)).total, 3);
}

TEST(Planner, HoistsWhatAStepDoesNotChange) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {1, 8, 32}), text = input(g, "text", DType::F32, {1, 5, 24}, Rate::Prompt);
  const Expr times = input(g, "times", DType::F32, {3, 8}, Rate::Schedule);
  const Expr emb = linear(silu(times), param(g, "t.weight", DType::F32, {32, 8}));
  const Expr key = linear(text, param(g, "k.weight", DType::F32, {32, 24}));
  const Expr now = gather(emb, scalar(g, "step", DType::I32));
  const Plan p = plan_of(linear(x + now, reshape(key, {1, 5, 32})));
  ASSERT_NE(p.phase(Rate::Schedule), nullptr);
  EXPECT_EQ(p.phase(Rate::Schedule)->launches.size(), 1u);
  EXPECT_EQ(p.phase(Rate::Prompt)->launches.size(), 1u);
  EXPECT_EQ(counts_of(p).total, 1);
  PlanOptions o;
  o.hoist = false;
  EXPECT_EQ(counts_of(plan_of(linear(x + now, key), o)).total, 3);
}

// A launch packs a weight that maths makes of parameters; a product of parameters is a launch of the constant phase.
TEST(Planner, HoistsProductsOfWeights) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 32}), a = param(g, "a", DType::F32, {8, 16}),
             b = param(g, "b", DType::F32, {32, 16});
  const Plan p = plan_of(linear(x, linear(a, b) * 2.0));
  EXPECT_EQ(counts_of(p, Rate::Constant).total, 1) << print_plan(p);
  EXPECT_EQ(counts_of(p).total, 1);
}

TEST(Planner, StatisticsLeaveThroughTheProducer) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {2, 8, 8, 16});
  const Expr h = conv2d(x, param(g, "w", DType::F32, {32, 16, 3, 3}), 1, {1, 1, 1, 1});
  const Expr mu = mean(h, ReduceOver::Inner);
  const Expr s = sum(h, ReduceOver::Inner);
  const Plan p = plan_of(conv2d(h - s / 64.0, param(g, "v", DType::F32, {8, 32, 3, 3}), 1, {1, 1, 1, 1}));
  EXPECT_EQ(counts_of(p).total, 2);
  EXPECT_EQ(step(p, 0).outputs.size(), 2u);
  (void)mu;
}

TEST(Planner, WhatNobodySuppliesGetsAGroupsLaunch) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {2, 8, 8, 16});
  const Expr s = sum(x, ReduceOver::Inner), q = sumsq(x, ReduceOver::Inner);
  const Plan p = plan_of(conv2d(x * q - s, param(g, "v", DType::F32, {8, 16, 3, 3})));
  ASSERT_EQ(counts_of(p).total, 2);
  EXPECT_EQ(step(p, 0).skeleton, "groups");
  EXPECT_EQ(step(p, 0).outputs.size(), 2u);
}

TEST(Planner, SaysWhyAReaderStayedOut) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 32});
  const Expr h = linear(x, param(g, "w", DType::F32, {32, 32}));
  const Expr norm = h - mean(h);
  const Plan p = plan_of(linear(norm, param(g, "v", DType::F32, {8, 32})) + 1.0);
  ASSERT_EQ(counts_of(p).total, 2);
  ASSERT_FALSE(step(p, 0).apart.empty());
  std::string why;
  for (const KeptApart& k : step(p, 0).apart) why += k.what + ": " + k.why + "\n";
  EXPECT_THAT(why, HasSubstr("mean"));
  EXPECT_THAT(why, HasSubstr("more of the result than a tile holds"));
}

TEST(Planner, ReductionsOfOtherTensorsStandBesideAnEpilogue) {
  Graph g;
  const Expr h = input(g, "h", DType::F32, {4, 100}), e = exp(h - reduce_max(h)), softmax = e / sum(e);
  const Expr y = linear(input(g, "x", DType::F32, {4, 32}), param(g, "w", DType::F32, {100, 32}));
  const Plan p = plan_of(y + softmax);
  ASSERT_EQ(counts_of(p).total, 2);
  EXPECT_EQ(step(p, 0).skeleton, "rows");
  EXPECT_EQ(step(p, 0).outputs.size(), 2u);  // the maximum and the sum; pointwise maths stays in the epilogue
  EXPECT_EQ(step(p, 1).skeleton, "gemm");
  try {
    one_launch("gemm", {store("y", y + softmax)});
    FAIL() << "an epilogue reduced rows";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("sum of another tensor needs its whole rows"));
  }
}

// For a reader that sums over other rows, the row's reduction is stored, not the tensor computed from it.
TEST(Planner, SumsOverOtherRowsReadReductionsFromMemory) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {64, 32, 128}), h = input(g, "h", DType::BF16, {64, 32, 128});
  const Plan p = plan_of(sum(permute(h * x * rsqrt(mean(x * x) + 1e-6), {1, 2, 0})));
  ASSERT_EQ(counts_of(p).total, 2);
  EXPECT_EQ(step(p, 0).outputs[0].value.shape(), (Shape{64, 32, 1}));
}

// Results that need the same kind of sums before them also share those launches.
TEST(Planner, ResultsShareWhatStandsInFrontOfThem) {
  Graph g;
  const auto gradient = [&](const std::string& name) {
    const Expr x = input(g, name, DType::F32, {256, 32, 16}), rows = sum(permute(x, {1, 2, 0}));
    return Result{"d." + name, sum(permute(rows, {2, 1, 0}))};
  };
  const Plan p = make_plan(std::array{gradient("a"), gradient("b")});
  ASSERT_EQ(counts_of(p).total, 2);
  EXPECT_EQ(step(p, 0).outputs.size(), 2u);
}

// y goes into the epilogue of the second product (it waits for that), z into the first one's; the norm is refused.
TEST(Planner, SaysWhereAReaderWent) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 32});
  const Expr h = silu(linear(x, param(g, "one.weight", DType::F32, {32, 32})));
  const Expr y = linear(h, param(g, "two.weight", DType::F32, {32, 32})) + h;
  const Plan p = plan_of(y - mean(y));
  ASSERT_EQ(counts_of(p).total, 3);
  const auto find = [&](size_t launch, const std::string& what) {
    for (const KeptApart& k : step(p, launch).apart)
      if (k.what.starts_with(what)) return k;
    return KeptApart{};
  };
  const KeptApart product = find(0, "linear"), sum = find(0, "add"), norm = find(1, "mean");
  EXPECT_EQ(product.kind, Apart::Anchor);
  ASSERT_EQ(product.into.size(), 1u);
  EXPECT_EQ(product.into[0].launch, "two");
  EXPECT_EQ(product.into[0].hole, "a");
  EXPECT_EQ(sum.kind, Apart::Fused);
  ASSERT_EQ(sum.into.size(), 1u);
  EXPECT_EQ(sum.into[0].launch, "two");
  EXPECT_EQ(sum.into[0].hole, "out");
  EXPECT_EQ(norm.kind, Apart::Refused);
  ASSERT_EQ(norm.into.size(), 1u);
  EXPECT_EQ(norm.into[0].launch, step(p, 2).name);
}

TEST(Planner, AMaterializedValueIsABoundary) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 32}), w = param(g, "w", DType::F32, {32, 32});
  const auto launches = [](const Expr& y) { return counts_of(plan_of(y)).total; };
  EXPECT_EQ(launches(silu(linear(gelu(x), w)) + x), 1);
  EXPECT_EQ(launches(silu(linear(materialize(gelu(x)), w)) + x), 2);
  EXPECT_EQ(launches(silu(materialize(linear(gelu(x), w))) + x), 2);
  EXPECT_EQ(launches(materialize(gelu(x)) + x), 2);
  EXPECT_EQ(launches(materialize(x) + x), 1) << "where it lies already";
  EXPECT_EQ(launches(g.make(node_type<nodes::Materialize>(), std::array{x}, {}) + x), 1);
  const Plan p = plan_of(silu(linear(materialize(cast(gelu(x), DType::BF16)), w)));
  EXPECT_EQ(p.buffer(step(p, 0).outputs[0].buffer).dtype, DType::BF16);
}

TEST(Planner, CountsBytesThatViewsLetThrough) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 32});
  const auto row = [&](int64_t i) { return slice(x, 0, i, i + 1); };
  EXPECT_EQ(bytes_moved(plan_of(row(0) * 2.0)), 4 * (32 + 32));
  EXPECT_EQ(bytes_moved(plan_of(row(0) + row(1))), 4 * (64 + 32));
  EXPECT_EQ(bytes_moved(plan_of(x + row(0))), 4 * (128 + 128)) << "no more than there is";
  const Expr table = param(g, "table", DType::F32, {1000, 32}), at = input(g, "at", DType::I32, {4});
  EXPECT_EQ(bytes_moved(plan_of(gather(table, at) + x)), 4 * (128 + 4 + 128 + 128));
}

TEST(Planner, RowsAndQuantisation) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {6, 64});
  const Expr n = x * rsqrt(mean(x * x) + 1e-6);
  const QuantizedRows rows = quantize_rows(n);
  const Plan p = one_launch("rows", {store("q", rows.q), store("s", rows.scale)});
  EXPECT_EQ(counts_of(p).total, 1);
  EXPECT_EQ(p.buffer("q").dtype, DType::E4M3);
  EXPECT_EQ(p.buffer("s").shape, (Shape{6, 1}));
}

TEST(Planner, ASkeletonFilledByHandSaysNo) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 32});
  try {
    one_launch("map", {store("y", x - mean(x))});
    FAIL() << "a row reduction ran in map";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("a reduction needs its whole row resident"));
  }
  EXPECT_THROW(one_launch("gemm", {store("y", x)}), Error);
  EXPECT_THROW(one_launch("no such", {store("y", x)}), Error);
}

TEST(Planner, SumsOverNothingAreRefused) {
  Graph g;
  const auto leaf = [&g](const char* name, const Shape& s) { return input(g, name, DType::F32, s); };
  const Expr image = leaf("image", {1, 4, 4, 0});
  for (const Expr& y : {mean(leaf("rows", {3, 0})), linear(leaf("x", {3, 0}), leaf("w", {5, 0})),
                        conv2d(image, leaf("kernel", {8, 0, 3, 3}))})
    try {
      plan_of(y);
      FAIL() << y->name();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Usage);
      EXPECT_THAT(e.what(), HasSubstr("without elements"));
      EXPECT_EQ(e.where(), y->name());
    }
}

TEST(Planner, LiteralsFold) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4});
  const Plan p = plan_of(x * (constant(g, 2) + constant(g, 3)));
  EXPECT_THAT(print_plan(p), HasSubstr("constant<5.0>"));
}

TEST(Memory, BuffersThatLiveTogetherDoNotOverlap) {
  Graph g;
  Expr h = input(g, "x", DType::F32, {64, 64});
  for (const char* w : {"a", "b", "c", "d", "e", "f"}) h = linear(h, param(g, w, DType::F32, {64, 64})) + h;
  const Plan p = plan_of(h);
  // A chain needs its input (kept), the result and at most two values at a time.
  EXPECT_LE(p.arena_bytes, 4 * 64 * 64 * 4);
  const Phase& s = *p.phase(Rate::Step);
  for (const Launch& l : s.launches)
    for (const Output& o : l.outputs)
      for (const Expr& e : operands_of(l)) {
        if (e.is<nodes::Param>()) continue;
        const Buffer &a = p.buffer(o.buffer), &b = p.buffer(e->attrs.text);
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset)
            << l.name << " writes over " << b.name;
      }
}

using Names = std::vector<std::string>;

// x = rms_norm(h), its sums, and a map that reads both: when the sums' launch begins, x is complete.
TEST(Settled, WhatNeitherTheLaunchNorTheOneInFrontWrites) {
  Graph g;
  const Expr h = input(g, "h", DType::F32, {2, 8, 8, 16}), x = h * rsqrt(mean(h * h) + 1e-6);
  const Plan p = plan_of((x - sum(x, ReduceOver::Inner) / 64.0) * input(g, "b", DType::F32, {16}));
  ASSERT_EQ(counts_of(p).total, 3);
  EXPECT_EQ(step(p, 1).skeleton, "groups");
  EXPECT_THAT(step(p, 0).settled, ::testing::IsEmpty()) << "what ran before a phase is not known";
  EXPECT_EQ(step(p, 1).settled, Names{"h"});
  EXPECT_THAT(step(p, 2).settled, ::testing::UnorderedElementsAre("b", "h", step(p, 0).outputs.at(0).buffer));
}

TEST(Settled, NotParametersNorResultsOfTheLaunchInFront) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 32});
  Expr h = x;
  for (const char* w : {"a", "b", "c"}) h = silu(linear(h, param(g, w, DType::F32, {32, 32})) + x);
  const Plan p = plan_of(h);
  ASSERT_EQ(counts_of(p).total, 3);
  EXPECT_THAT(step(p, 0).settled, ::testing::IsEmpty());
  for (size_t i : {1u, 2u}) EXPECT_EQ(step(p, i).settled, Names{"x"});
}

// If two launches could use the same memory, the later one's settled buffers are kept apart from what the launch before
// it writes.
TEST(Settled, LiesBesideWhatTheLaunchInFrontWrites) {
  Graph g;
  Expr h = input(g, "x", DType::F32, {64, 64}), before = h;
  for (const char* w : {"a", "b", "c", "d", "e", "f"}) {
    const Expr next = linear(h, param(g, w, DType::F32, {64, 64})) + before;
    before = h;
    h = next;
  }
  const Plan p = plan_of(h);
  const Phase& s = *p.phase(Rate::Step);
  int reused = 0, found = 0;
  for (size_t i = 1; i < s.launches.size(); ++i)
    for (const std::string& name : s.launches[i].settled) {
      const Buffer& b = p.buffer(name);
      found += b.role == BufferRole::Temporary;
      for (const Output& o : s.launches[i - 1].outputs) {
        const Buffer& a = p.buffer(o.buffer);
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset)
            << s.launches[i].name << " may read " << name << " while " << a.name << " is written there";
      }
      for (const Launch& l : s.launches)
        for (const Output& o : l.outputs) reused += o.buffer != name && p.buffer(o.buffer).offset == b.offset;
    }
  EXPECT_GT(found, 0);
  EXPECT_GT(reused, 0) << "no settled buffer shares its memory with another: this shows nothing";
}

// Stored launches run when the plan is prepared, so the one that runs in front of `b`'s is `a`'s.
TEST(Settled, NotBehindStoredLaunches) {
  Graph g;
  const auto weight = [&](const char* name) { return param(g, name, DType::F32, {64, 64}); };
  const Expr a = linear(input(g, "c", DType::F32, {256, 64}, Rate::Constant), weight("w"));
  const Expr s = linear(weight("v"), weight("w")), b = linear(a, weight("v"));
  const Plan p = make_plan(std::array{Result{"a", a}, Result{"s", s}, Result{"b", b}});
  const auto& launches = p.phase(Rate::Constant)->launches;
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_TRUE(p.stored(launches[1]));
  for (const Launch& l : launches) EXPECT_THAT(l.settled, ::testing::IsEmpty());
}

// If a result has the name of an input, its launch writes what it reads.
TEST(Settled, NothingThatTheLaunchItselfWrites) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 32}), r = input(g, "r", DType::F32, {4, 32});
  const Expr h = linear(x, param(g, "w", DType::F32, {32, 32}));
  const std::array results{Result{"y", h}, Result{"r", linear(h, param(g, "v", DType::F32, {32, 32})) + r}};
  PlanOptions o;
  o.outside = true;  // `r` is the caller's memory, read and then written
  const Plan p = make_plan(results, o);
  ASSERT_EQ(counts_of(p).total, 2);
  EXPECT_THAT(step(p, 1).settled, ::testing::IsEmpty());
}

Plan whole_unet() {
  UNetShape s;
  s.height = 8;
  s.width = 8;
  s.tokens = 7;
  Graph g;
  return plan_of(unet(g, model_preset("tiny").config.unet, s, nn::kBf16));
}

// Attempts that were abandoned leave nothing in the plan.
TEST(Planner, TrialsLeaveTheGraphAsItWas) {
  const Plan p = whole_unet();
  std::vector<Expr> committed;
  for (const Phase& phase : p.phases)
    for (const Launch& l : phase.launches)
      for (const Output& o : l.outputs) committed.push_back(o.value);
  EXPECT_EQ(p.graph->size(), topological(committed).size());
}

// A launch carries its form from the planner, or from text, to the backend.
TEST(Planner, LaunchesCarryTheirForm) {
  const Plan p = whole_unet(), back = parse_plan(print_plan(p));
  for (size_t i = 0; i < p.phases.size(); ++i)
    for (size_t j = 0; j < p.phases[i].launches.size(); ++j) {
      const Launch &l = p.phases[i].launches[j], &m = back.phases[i].launches[j];
      ASSERT_TRUE(l.form && m.form) << l.name;
      EXPECT_EQ(m.settled, l.settled) << l.name;
      ASSERT_EQ(m.form->outputs.size(), l.form->outputs.size());
      for (size_t o = 0; o < l.form->outputs.size(); ++o) {
        EXPECT_EQ(print(m.form->outputs[o].value), print(l.form->outputs[o].value));
        EXPECT_EQ(print(m.form->outputs[o].place), print(l.form->outputs[o].place));
      }
      const size_t nodes = l.form->graph->size();
      const Form copy = own_copy(*l.form);
      for (size_t h = 0; h < l.form->holes.size(); ++h) EXPECT_EQ(print(copy.holes[h]), print(l.form->holes[h]));
      input(*copy.graph, "more", DType::F32, {1});
      EXPECT_EQ(l.form->graph->size(), nodes);
    }
  EXPECT_TRUE(
      one_launch("map", {store("y", input(*p.graph, "z", DType::F32, {2, 2}) * 2.0)}).phases[0].launches[0].form);
}

}  // namespace
}  // namespace tenon
