// States in plans: readers of the old value run first, readers of the new one afterwards, and impossible orders are
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/core/error.h"
#include "tenon/explain/parse_plan.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/executable.h"

namespace tenon {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

template <class F>
std::string thrown_by(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

// Runs twice on the null backend, which computes nothing and checks everything.
std::string found_by_null(const Plan& plan) {
  return thrown_by([&] {
    Executable e(plan, make_backend("null"), HostWeights());
    e.run_all();
    e.run_all();
  });
}

std::vector<std::string> writes_of(const Plan& p) {
  std::vector<std::string> out;
  for (const Launch& l : p.phase(Rate::Step)->launches)
    for (const Output& o : l.outputs) out.push_back(o.buffer);
  return out;
}

// A cache of keys, read before and after the write of a linear layer's result.
struct Cache {
  Graph g;
  Expr k = state(g, "k", DType::F32, {8, 16}), at = input(g, "at", DType::I32, {3}),
       x = input(g, "x", DType::F32, {3, 16}), w = param(g, "w", DType::F32, {16, 16});
  Expr updated = update_rows(k, at, linear(x, w) * 2.0);
};

TEST(States, AnUpdateLeavesWithTheProductThatMakesItsRows) {
  Cache c;
  const Plan p = make_plan(std::array{Result{"k", c.updated}});
  ASSERT_EQ(counts_of(p).total, 1);
  const Launch& l = p.phase(Rate::Step)->launches[0];
  EXPECT_EQ(l.skeleton, "gemm");
  EXPECT_EQ(l.outputs[0].buffer, "k");
  EXPECT_EQ(l.form->outputs[0].place.shape(), (Shape{3, 16}));
  EXPECT_EQ(bytes_moved(l), (3 * 16 + 16 * 16 + 3 * 16) * 4 + 3 * 4);
  EXPECT_EQ(p.buffer("k").role, BufferRole::State);
  EXPECT_EQ(p.arena_bytes, 256) << "x and where it goes";
  EXPECT_EQ(print_plan(parse_plan(print_plan(p))), print_plan(p));
  EXPECT_EQ(found_by_null(p), "nothing was thrown");
}

TEST(States, ReadersOfTheOldValueGoFirst) {
  for (const bool fusion : {true, false}) {
    Cache c;
    const Expr old_rows = sum(c.k), later = sum(c.updated), through = exp(slice(c.k, 0, 0, 2));
    PlanOptions o;
    o.fusion = fusion;
    const std::array results = {Result{"k", c.updated}, Result{"later", later}, Result{"old", old_rows},
                                Result{"product", linear(through, c.w)}};
    const Plan p = make_plan(results, o);
    const std::vector<std::string> order = writes_of(p);
    const auto place = [&](const std::string& name) { return std::ranges::find(order, name) - order.begin(); };
    EXPECT_LT(place("old"), place("k"));
    if (fusion) {
      EXPECT_LT(place("product"), place("k"));
    }
    EXPECT_LT(place("k"), place("later"));
    EXPECT_EQ(found_by_null(p), "nothing was thrown");
    EXPECT_EQ(print_plan(parse_plan(print_plan(p))), print_plan(p));

    int checked = 0;
    // Any other order is detected, both by parsing and by the null backend.
    for (size_t i = 0; i + 1 < order.size(); ++i) {
      Plan wrong = p;
      std::vector<Launch>& launches = wrong.phases.back().launches;
      std::swap(launches[i], launches[i + 1]);
      const auto reads = [&](const Launch& l) {
        return std::ranges::any_of(operands_of(l), [](const Expr& e) { return e.is<nodes::State>(); });
      };
      const bool writes = order[i] == "k" || order[i + 1] == "k";
      const std::string hazard = state_hazard(wrong);
      if (!writes || !reads(launches[i]) || !reads(launches[i + 1])) continue;
      ++checked;
      EXPECT_THAT(hazard, HasSubstr("reads the state 'k' after")) << i;
      EXPECT_THAT(thrown_by([&] { parse_plan(print_plan(wrong)); }), HasSubstr(hazard));
      EXPECT_THAT(found_by_null(wrong), HasSubstr("reads 'k' after"));
    }
    EXPECT_GE(checked, 1);
  }
}

TEST(States, ReadersBehindAProductOfWeights) {
  Cache c;
  const Expr updated = update_rows(c.k, c.at, c.x), after = sum(updated);  // planned before what follows
  const Expr before = linear(linear(c.w, param(c.g, "v", DType::F32, {16, 16})) * 0.5, c.k);
  for (const bool fusion : {true, false})
    for (const bool hoist : {true, false}) {
      PlanOptions options;
      options.fusion = fusion;
      options.hoist = hoist;
      const std::array results = {Result{"k", updated}, Result{"after", after}, Result{"before", before}};
      EXPECT_EQ(found_by_null(make_plan(results, options)), "nothing was thrown");
    }
}

TEST(States, UpdatesOfUpdatesAreOrdered) {
  Cache c;
  const Expr twice = update_rows(c.updated, iota(c.g, 1), slice(c.updated, 0, 4, 5) * 2.0);
  const Plan p = make_plan(std::array{Result{"k", twice}, Result{"y", exp(c.updated)}, Result{"z", exp(twice)}});
  EXPECT_EQ(found_by_null(p), "nothing was thrown");
  const std::vector<std::string> order = writes_of(p);
  EXPECT_EQ(std::ranges::count(order, "k"), 2);
  EXPECT_LT(std::ranges::find(order, "y"), std::ranges::find(order, "z"));
}

// An update that still waits for such readers must not leave with the results of an earlier stage.
TEST(States, ReadersOfOldRowsGoFirstInStagesToo) {
  Cache c;
  for (const bool stored : {true, false}) {
    const Expr rows = slice(c.k, 0, 0, 3) * 2.0,
               twice = update_rows(c.updated, c.at, stored ? materialize(rows) : rows);
    const std::array results = {Result{"k", twice}, Result{"y", exp(barrier(c.x, 0))}};
    EXPECT_EQ(found_by_null(make_plan(results)), "nothing was thrown");
  }
}

// A boundary behind an update is no copy of the state: what reads it runs before the next update, too.
TEST(States, BoundariesBehindAnUpdate) {
  for (const bool stage : {true, false}) {
    Cache c;
    const Expr once = stage ? barrier(c.updated, 0) : materialize(c.updated), twice = update_rows(c.updated, c.at, c.x);
    const Plan p = make_plan(std::array{Result{"k", twice}, Result{"y", sum(once)}});
    EXPECT_THAT(writes_of(p), ElementsAre("k", "y", "k"));
    EXPECT_EQ(found_by_null(p), "nothing was thrown");
  }
}

// An anchor cannot join layers of which one reads old rows and the other new ones.
TEST(States, LayersOnBothSidesOfAnUpdate) {
  Cache c;
  PlanOptions options;
  options.target.runs = [](const Expr&) { return true; };
  const Expr v = param(c.g, "v", DType::F32, {16, 16}), before = linear(slice(c.k, 0, 0, 3), v),
             after = linear(gather(c.updated, c.at), c.w);
  const std::array results = {Result{"k", c.updated}, Result{"y", before + after}};
  EXPECT_EQ(found_by_null(make_plan(results, options)), "nothing was thrown");
}

TEST(States, OneLaunchWritesSeveralStates) {
  Graph g;
  const Expr at = input(g, "at", DType::I32, {3}), x = input(g, "x", DType::F32, {3, 16}),
             y = input(g, "y", DType::F32, {3, 16});
  const Expr k = update_rows(state(g, "k", DType::F32, {8, 16}), at, exp(x)),
             v = update_rows(state(g, "v", DType::F32, {9, 16}), at, x * y);
  const Plan p = make_plan(std::array{Result{"k", k}, Result{"v", v}});
  EXPECT_EQ(counts_of(p).total, 1);
  EXPECT_THAT(writes_of(p), ElementsAre("k", "v"));
  EXPECT_EQ(found_by_null(p), "nothing was thrown");
}

// Reading a state and writing it takes two launches, or threads would read what others have written.
TEST(States, RowsThatReadTheStateAreInMemoryFirst) {
  Graph g;
  const Expr k = state(g, "k", DType::F32, {8, 16}), at = input(g, "at", DType::I32, {3});
  const Plan p = make_plan(std::array{Result{"k", update_rows(k, at, gather(k, at) * 2.0)}});
  EXPECT_EQ(counts_of(p).total, 2);
  EXPECT_EQ(found_by_null(p), "nothing was thrown");
  const Expr n = state(g, "n", DType::I32, {4}), next = update_rows(n, slice(n, 0, 0, 1), iota(g, 1));
  const Plan q = make_plan(std::array{Result{"n", next}});
  EXPECT_EQ(counts_of(q).total, 2) << "a place that is read where it is written";
  EXPECT_EQ(found_by_null(q), "nothing was thrown");
}

TEST(States, CyclesAreRefusedByName) {
  Cache c;
  const auto refusal = [](const std::vector<Result>& results) { return thrown_by([&] { make_plan(results); }); };
  EXPECT_THAT(refusal({{"y", c.k + c.updated}}),
              HasSubstr("reads the old value of the state 'k' after it was replaced"));
  EXPECT_THAT(refusal({{"k", c.updated}, {"y", linear(exp(c.updated), c.k)}}),
              HasSubstr("reads the old value of the state 'k' after it was replaced"));
  // Neither of the two can be first.
  const Expr v = state(c.g, "v", DType::F32, {8, 16}), new_v = update_rows(v, c.at, c.x);
  EXPECT_THAT(refusal({{"y", c.k * new_v}, {"z", v * c.updated}}), HasSubstr("reads the old value of the state"));
  EXPECT_THAT(refusal({{"y", c.k * new_v}, {"v", new_v}, {"z", exp(c.updated)}}), HasSubstr("nothing was thrown"));
  EXPECT_THAT(refusal({{"y", exp(c.updated)}, {"z", exp(update_rows(c.k, c.at, c.x))}}),
              HasSubstr("two updates of the same value of the state 'k'"));
  EXPECT_THAT(refusal({{"y", c.updated}}), HasSubstr("result 'y' is an update of the state 'k'"));
}

// The null backend detects errors in any plan's memory or order.
TEST(States, NullFindsOtherHazardsToo) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {64, 64}), w = param(g, "w", DType::F32, {64, 64});
  const Expr a = linear(x, w), b = linear(exp(sum(a) + a), w), c = linear(exp(sum(b) + b), w);
  Plan p = make_plan(std::array{Result{"y", c + a}});
  ASSERT_GE(counts_of(p).total, 3);
  EXPECT_EQ(found_by_null(p), "nothing was thrown");
  Plan swapped = p;
  std::swap(swapped.phases.back().launches[0], swapped.phases.back().launches[1]);
  EXPECT_THAT(found_by_null(swapped), HasSubstr("which nothing has written"));
  size_t found = 0;
  for (const Buffer& one : p.buffers)
    for (const Buffer& other : p.buffers) {
      if (&one == &other || one.offset == other.offset) continue;
      Plan moved = p;
      moved.buffers[static_cast<size_t>(&one - p.buffers.data())].offset = other.offset;
      found += found_by_null(moved) != "nothing was thrown";
    }
  EXPECT_GT(found, 0U);
}

// Rows that a product makes are written by its launch, though the reader's kernel could write them.
TEST(States, AProductWritesTheRowsThatAnAnchorReads) {
  Cache c;
  PlanOptions options;
  options.target.writes = [](const Form&) { return true; };
  const Plan p = make_plan(std::array{Result{"k", c.updated}, Result{"y", linear(c.x, c.updated)}}, options);
  EXPECT_THAT(writes_of(p), ElementsAre("k", "y"));
  EXPECT_EQ(found_by_null(p), "nothing was thrown");
}

// Caches of keys and values, written by the launch that reads them if its kernel supports both.
TEST(States, AnAnchorWritesTheRowsThatItReads) {
  Graph g;
  const Expr at = input(g, "at", DType::I32, {1}), x = input(g, "x", DType::F32, {1, 2, 16});
  const auto cache = [&](const char* name, const Expr& rows) {
    return update_rows(state(g, name, DType::F32, {8, 2, 16}), at, rows);
  };
  const auto seen = [](const Expr& all) { return permute(reshape(all, {1, 8, 2, 16}), {0, 2, 1, 3}); };
  const Expr k = cache("k", x * 2.0), v = cache("v", x * 3.0),
             y = attention(reshape(x, {1, 2, 1, 16}), seen(k), seen(v), 0.25, true, at);
  const std::array results = {Result{"y", y}, Result{"k", k}, Result{"v", v}};
  EXPECT_THAT(writes_of(make_plan(results)), ElementsAre("k", "v", "y"));
  EXPECT_EQ(counts_of(make_plan(results)).total, 2);
  PlanOptions options;
  options.target.writes = [](const Form& form) { return form.anchor.is<nodes::Attention>(); };
  const Plan p = make_plan(results, options);
  EXPECT_EQ(counts_of(p).total, 1);
  EXPECT_THAT(writes_of(p), ElementsAre("y", "k", "v"));
  const Launch& l = p.phase(Rate::Step)->launches[0];
  EXPECT_EQ(l.form->updates.size(), 2U);
  EXPECT_EQ(bytes_moved(l), (2 * 8 * 32 + 32 + 3 * 32) * 4 + 4) << "caches and x once, what is written";
  EXPECT_EQ(print_plan(parse_plan(print_plan(p))), print_plan(p));
  EXPECT_EQ(found_by_null(p), "nothing was thrown");
  EXPECT_EQ(state_hazard(p), "");
  EXPECT_THAT(thrown_by([&] { Executable(p, make_backend("cpu"), HostWeights()); }), HasSubstr("takes two launches"));
  // Readers of the old value run first.
  const Expr old = sum(state(g, "k", DType::F32, {8, 2, 16}));
  const std::array with_old = {results[0], results[1], results[2], Result{"old", old}};
  const Plan q = make_plan(with_old, options);
  EXPECT_THAT(writes_of(q), ElementsAre("v", "old", "y", "k"));
  EXPECT_EQ(found_by_null(q), "nothing was thrown");
}

}  // namespace
}  // namespace tenon
