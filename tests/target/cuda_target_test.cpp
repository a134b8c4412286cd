// What an H200's kernels read in place, and what becomes a separate launch. Kernels are generated but not run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/core/error.h"
#include "tenon/explain/explanation.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/models/registry.h"
#include "tenon/models/vit.h"
#include "tenon/pipelines/decode_loop.h"
#include "tenon/pipelines/decoder_plans.h"
#include "tenon/pipelines/networks.h"
#include "tenon/pipelines/text_generator.h"
#include "tenon/runtime/plan_kernels.h"
#include "tests/plan/golden.h"
#include "tests/plan/sandwich.h"
#include "tests/target/h200.h"

namespace tenon {
namespace {
using target::h200;

KernelCounts kernels_of(const Plan& plan) { return kernels_of(PlanKernels(plan, WeightStore(h200(), nullptr))); }

int kernels_of_step(const Plan& plan) {
  const KernelCounts all = kernels_of(plan);
  int n = 0;
  for (const Launch& l : plan.phase(Rate::Step)->launches) n += all.at(l.name);
  return n;
}

bool counts_statistics(const Launch& l) {
  return std::ranges::any_of(l.form->outputs, [](const FormOutput& o) { return o.statistic != nullptr; });
}

Plan unet_plan(const Target& target, int64_t batch = 1, bool guided = true) {
  UNetShape s;
  s.batch = batch;
  s.guided = guided;
  s.timesteps = 20;
  Graph g;
  PlanOptions o;
  o.name = "unet";
  o.target = target;
  const nn::Precision f16{DType::F16, DType::F16};
  return make_plan(std::array{Result{"result", unet(g, model_preset("sd15").config.unet, s, f16)}}, o);
}

// Each launch is one kernel, except sums of statistics that several tiles count, and the first convolution's four
// channels, which are padded to eight.
TEST(CudaTarget, UNet) {
  const Plan plan = unet_plan(h200()->target()), elsewhere = unet_plan({});
  expect_golden("sd15_unet_h200.txt", summary(plan));
  const KernelCounts kernels = kernels_of(plan);
  for (const Launch& l : plan.phase(Rate::Step)->launches) {
    const bool padded = l.name == "conv_in";
    EXPECT_LE(kernels.at(l.name), 1 + counts_statistics(l) + 2 * padded) << l.name;
  }
  EXPECT_LE(kernels_of_step(plan), kernels_of_step(elsewhere));
  EXPECT_LE(counts_of(plan).total, 320);
  RecordProperty("kernels", kernels_of_step(plan));
}

// Batch invariance (BackendOptions::batch_invariant) is implemented in the kernels: the launches must be the same.
TEST(CudaTarget, BatchesHaveTheSameLaunches) {
  const std::shared_ptr<Backend> invariant =
      cuda::make_cuda_backend(std::make_shared<target::H200>(cuda::kChosenSamples));
  const auto launches = [&](int64_t batch, bool guided) {
    std::vector<std::string> out;
    const Plan plan = unet_plan(invariant->target(), batch, guided);
    for (const Launch& l : plan.phase(Rate::Step)->launches)
      out.push_back(l.skeleton + " " + l.name + " " + std::to_string(l.form->lets.size()) + " lets, " +
                    std::to_string(l.outputs.size()) + " results");
    return out;
  };
  const std::vector<std::string> one = launches(1, true);
  for (const int64_t batch : {2, 3, 8}) EXPECT_EQ(launches(batch, true), one) << batch;
  EXPECT_NE(launches(16, true), one) << "kMaxInvariantImages may be more";
}

TEST(CudaTarget, ExplainCountsBoth) {
  const Plan plan = unet_plan({});
  const PlanKernels made(plan, WeightStore(h200(), nullptr));
  const Explanation e = explain(plan, made.memory, 0, {}, kernels_of(made));
  EXPECT_EQ(e.kernels, kernels_of_step(plan));
  EXPECT_GT(e.kernels, e.counts.total);
  EXPECT_THAT(explanation_text(e),
              testing::HasSubstr("one step: " + launches_text(e.counts.total) + ", " + kernels_text(e.kernels) + " ("));
}

// A language model's layer for one token is five launches of one kernel each: norm and queries, keys, values;
// attention, which rotates them and writes both caches; output projection; norm, gate and up; down.
TEST(CudaTarget, ATokenOfALanguageModel) {
  NetworkOptions options;
  options.target = h200()->target();
  for (const int64_t page : {int64_t{0}, kCachePage}) {
    const auto plan_of = [&](int64_t layers) {
      DecoderConfig c;
      c.layers = layers;
      return plan_decoder(c, {.page = page, .pages = 5}, options);
    };
    const Plan two = plan_of(2), four = plan_of(4);
    EXPECT_EQ(four.phase(Rate::Step)->launches.size() - two.phase(Rate::Step)->launches.size(), 10u) << page;
    EXPECT_EQ(kernels_of_step(four) - kernels_of_step(two), 10) << page;
  }
}

// Operations on top of a stored value are left unstored only if kernels can read through them.
TEST(CudaTarget, ViewsThatNoKernelReadsThroughAreStoredToo) {
  Graph g;
  PlanOptions o;
  o.target = h200()->target();
  const auto stored = [&](const std::string& name, int64_t columns) {
    const Expr x = input(g, name, DType::BF16, {64, columns}), w = param(g, name + ".w", DType::BF16, {32, 64});
    const Plan plan = make_plan(std::array{Result{"y", linear(transpose(cast(tanh(x), DType::BF16)), w)}}, o);
    EXPECT_EQ(counts_of(plan).total, 2);
    EXPECT_EQ(kernels_of_step(plan), 2);
    return plan.phase(Rate::Step)->launches[0].outputs[0].value.shape();
  };
  EXPECT_EQ(stored("in columns", 128), (Shape{64, 128}));
  EXPECT_EQ(stored("no box begins at every row", 36), (Shape{36, 64}));
}

// A branch whose layer's rows are not computed yet is planned before them.
TEST(CudaTarget, ABranchBeforeTheRowsOfItsLayer) {
  Graph g;
  PlanOptions o;
  o.target = h200()->target();
  const auto layer = [&](const Expr& x, const std::string& name, int64_t columns) {
    return linear(x, param(g, name, DType::BF16, {columns, x.shape()[-1]}));
  };
  const auto rows = [&](const std::string& name, int64_t columns) {
    return cast(gelu(layer(input(g, name, DType::BF16, {4096, 256}), name + ".w", columns)), DType::BF16);
  };
  const Expr narrow = rows("i", 64), first = tanh(narrow), wide = rows("j", 512);
  const Expr y = cast(layer(wide, "W", 1024) + layer(narrow, "V", 1024), DType::BF16);
  EXPECT_EQ(counts_of(make_plan(std::array{Result{"first", first}, Result{"y", y}}, o)).total, 3);
}

// Storing such a hole would save nothing: the kernel's copy has padded rows.
TEST(CudaTarget, PaddedRowsAreTheKernelsOwn) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {64, 12}), w = param(g, "w", DType::BF16, {32, 12});
  PlanOptions o;
  o.target = h200()->target();
  const Plan plan = make_plan(std::array{Result{"y", linear(cast(tanh(x), DType::BF16), w)}}, o);
  EXPECT_EQ(counts_of(plan).total, 1);
  EXPECT_EQ(kernels_of_step(plan), 2);  // operand, product: zeros stay
}

namespace s = sandwich;

TEST(CudaTarget, SandwichNorms) {
  const Target target = h200()->target();
  const Plan two = s::network(2, target), six = s::network(6, target);
  expect_golden("sandwich_h200.txt", summary(two));
  EXPECT_EQ(s::launches(six).size() - s::launches(two).size(), 40u);
  for (const Launch& l : s::launches(two)) EXPECT_EQ(kernels_of(two).at(l.name), 1) << l.name;
}

// The plans that other targets have, and a kernel for each launch.
TEST(CudaTarget, SandwichParts) {
  s::Sandwich all;
  std::string text;
  for (const s::Part& part : s::parts(all)) {
    const Plan plan = s::plan_of({{"y", part.y}}, h200()->target());
    EXPECT_EQ(s::passes(plan), part.passes) << part.name;
    EXPECT_EQ(kernels_of_step(plan), counts_of(plan).total) << part.name;
    text += part.name + "\n" + summary(plan);
  }
  expect_golden("sandwich_parts.txt", text);
}

// After a step's network: the head's product with a repetition penalty in its epilogue, the sampling, and one launch
// for the states that the next run reads.
TEST(CudaTarget, HeadAndDrawInThreeLaunches) {
  DecoderConfig c;
  c.layers = 1;
  PlanOptions options;
  options.target = h200()->target();
  for (const int64_t rows : {1, 16}) {
    SCOPED_TRACE(rows);
    for (const bool penalises : {false, true}) {
      DecodeStepShape shape{.rows = rows, .stops = 2, .penalises = penalises};
      const Plan side_by_side = plan_decode_step(c, shape, nn::kBf16, options);
      shape.page = kCachePage;
      shape.pages = 3;
      const Plan plan = plan_decode_step(c, shape, nn::kBf16, options);
      EXPECT_EQ(counts_of(plan).total, counts_of(side_by_side).total);
      EXPECT_EQ(kernels_of_step(plan), kernels_of_step(side_by_side));
      const std::vector<Launch>& all = plan.phase(Rate::Step)->launches;
      const auto head = std::ranges::find_if(all, [](const Launch& l) { return l.name == "model.embed_tokens"; });
      std::vector<std::pair<std::string, int>> behind;
      for (auto l = head; l != all.end(); ++l) behind.emplace_back(l->skeleton, kernels_of(plan).at(l->name));
      EXPECT_THAT(behind,
                  testing::ElementsAre(testing::Pair("gemm", 1), testing::Pair("sample", 1), testing::Pair("map", 1)));
    }
  }
}

}  // namespace
}  // namespace tenon
