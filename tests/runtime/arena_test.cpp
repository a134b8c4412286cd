// Executables that share one arena for temporaries, taking turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/expr/ops.h"
#include "tenon/runtime/executable.h"
#include "tests/runtime/places.h"

namespace tenon {
namespace {
using places::Place;
using places::places;
using testing::Each;
using testing::HasSubstr;

// y = (slow + 1) * x * 2 + 3 with n elements: the value computed from `slow` and the product are stored.
Plan plan_of(int64_t n) {
  Graph g;
  const Expr slow = input(g, "slow", DType::F32, {n}, Rate::Schedule), x = input(g, "x", DType::F32, {n});
  PlanOptions options;
  options.name = "plan of " + std::to_string(n);
  return make_plan(std::array{Result{"y", materialize(materialize(slow + 1.0) * x) * 2.0 + 3.0}}, options);
}

struct Runner {
  int64_t n;
  Executable executable;
  Runner(const Place& place, int64_t count, const std::shared_ptr<Arena>& arena)
      : n(count),
        executable(plan_of(n), std::make_shared<WeightStore>(place.backend, nullptr), {}, nullptr, nullptr, arena) {}
  void set(const std::string& name, float value) {
    executable.set(name, std::vector<float>(static_cast<size_t>(n), value));
  }
  void run_whole(float slow, float x) {
    set("slow", slow);
    set("x", x);
    executable.run_all();
  }
};

int64_t temporaries(const Runner& r) { return r.executable.allocated().arena + r.executable.allocated().scratch; }

TEST(Arena, ExecutablesRunInTurn) {
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    const auto arena = std::make_shared<Arena>(place.backend);
    Runner few(place, 1000, arena);
    few.run_whole(1, 5);
    EXPECT_THAT(few.executable.get("y"), Each(23));
    Runner many(place, 5000, arena);  // reallocates the arena that `few` uses
    EXPECT_EQ(arena->bytes(), temporaries(many));
    EXPECT_EQ(many.executable.allocated().shared, temporaries(few));
    many.run_whole(10, 100);
    EXPECT_THAT(many.executable.get("y"), Each(2203));
    for (int run = 0; run < 4; ++run) {  // both launch by launch, recorded, and replayed
      few.executable.run();
      EXPECT_THAT(few.executable.get("y"), Each(23)) << "what slower phases made is made again, " << run;
      many.executable.run();
      EXPECT_THAT(many.executable.get("y"), Each(2203)) << run;
    }
    few.set("x", 7);
    few.executable.run();
    few.executable.run();
    EXPECT_THAT(few.executable.get("y"), Each(31));
    many.set("slow", 20);
    many.executable.run(Rate::Schedule);
    many.executable.run();
    EXPECT_THAT(many.executable.get("y"), Each(4203));
  }
}

TEST(Arena, SlowerPhasesAreMadeAgainAfterAnInterruptedRun) {
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    const auto arena = std::make_shared<Arena>(place.backend);
    Runner one(place, 100, arena), other(place, 100, arena);
    for (Runner* r : {&one, &other}) {
      r->set("slow", r == &one ? 1 : 10);
      r->set("x", 5);
      r->executable.run_all();
    }
    {
      const StopScope stop([] { return true; });
      EXPECT_THROW(one.executable.run(), Error);
    }
    one.executable.run();
    EXPECT_THAT(one.executable.get("y"), Each(23));
  }
}

TEST(Arena, SlowerPhasesAreMadeAgainOnce) {
  const std::shared_ptr<Backend> backend = make_backend("cpu", {1});
  const auto arena = std::make_shared<Arena>(backend);
  Runner one({"cpu", backend}, 100, arena), other({"cpu", backend}, 50, arena);
  for (Runner* r : {&one, &other}) {
    r->set("slow", 1);
    r->set("x", 5);
    r->executable.run_all();
  }
  int launches = 0;  // it is asked before each
  const StopScope count([&] { return ++launches < 0; });
  one.executable.run_all();
  EXPECT_EQ(launches, 3) << "one of the schedule and two of the step";
  EXPECT_THAT(one.executable.get("y"), Each(23));
}

TEST(Arena, GoesOnAfterAnotherDidNotFit) {
  const std::shared_ptr<Backend> backend = make_backend("cpu", {1});
  const auto arena = std::make_shared<Arena>(backend);
  Runner one({"cpu", backend}, 100, arena);
  one.set("slow", 1);
  one.set("x", 5);
  one.executable.run_all();
  EXPECT_THROW(arena->reserve(int64_t{1} << 60), Error);  // by then its memory is gone
  one.executable.run();
  EXPECT_EQ(arena->bytes(), temporaries(one));
  EXPECT_THAT(one.executable.get("y"), Each(23));
}

TEST(Arena, ResultsAreReadBeforeTheNextRuns) {
  const std::shared_ptr<Backend> backend = make_backend("cpu", {1});
  const auto arena = std::make_shared<Arena>(backend);
  Runner one({"cpu", backend}, 100, arena), other({"cpu", backend}, 50, arena);
  for (Runner* r : {&one, &other}) {
    r->set("slow", 0);
    r->set("x", 1);
    r->executable.run_all();
  }
  try {
    static_cast<void>(one.executable.get("y"));
    ADD_FAILURE() << "another's numbers were read";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Internal);
    EXPECT_THAT(e.what(), HasSubstr("cannot be read: another plan has taken its memory since"));
  }
  EXPECT_THAT(other.executable.get("y"), Each(5));
  EXPECT_THAT(one.executable.get("x"), Each(1)) << "inputs are elsewhere";
}

// Inputs lie elsewhere, and an executable that has not run has written nothing.
TEST(Arena, ResultsStayWhileOthersArePreparedAndSet) {
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    const auto arena = std::make_shared<Arena>(place.backend);
    Runner one(place, 100, arena);
    one.run_whole(1, 5);
    Runner other(place, 100, arena);
    other.set("slow", 1);
    EXPECT_THAT(one.executable.get("y"), Each(23));
    other.executable.set("x", one.executable.get("y"));
    other.executable.wait_for(one.executable);
    EXPECT_THAT(one.executable.get("y"), Each(23));
    other.executable.run_all();
    EXPECT_THAT(other.executable.get("y"), Each(95));
    EXPECT_THROW(static_cast<void>(one.executable.get("y")), Error);
    one.executable.run();
    EXPECT_THAT(one.executable.get("y"), Each(23));
    const Runner larger(place, 5000, arena);  // moves the arena
    EXPECT_THROW(static_cast<void>(one.executable.get("y")), Error);
    one.executable.run();
    EXPECT_THAT(one.executable.get("y"), Each(23));
  }
}

// An executable that is no more has left the arena, so that one at the same address counts as another.
TEST(Arena, AnotherUserAtTheSameAddress) {
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    const auto arena = std::make_shared<Arena>(place.backend);
    std::optional<Runner> one(std::in_place, place, 100, arena);
    one->run_whole(1, 5);
    EXPECT_FALSE(arena->had_last(arena.get()));
    one.reset();
    EXPECT_TRUE(arena->had_last(arena.get())) << "nobody's, but used";
  }
}

}  // namespace
}  // namespace tenon
