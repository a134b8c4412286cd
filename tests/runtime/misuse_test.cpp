// Calls of executables and stores that cannot mean anything: each is refused by name, before any memory is touched.
#include <gtest/gtest.h>

#include "tenon/backend/offline_compiler.h"
#include "tenon/expr/ops.h"
#include "tenon/runtime/executable.h"
#include "tests/support/refusing.h"

namespace tenon {
namespace {

class Misuse : public test::Refusing {
 protected:
  static Plan plan(bool outside = false) {
    Graph g;
    const Expr y = linear(input(g, "x", DType::F32, {5, 4}) * scalar(g, "s"), param(g, "w", DType::F32, {3, 4}));
    PlanOptions options;
    options.outside = outside;
    return make_plan(std::array{Result{"y", y}}, options);
  }
  HostView w() const { return {DType::F32, {3, 4}, values_.data()}; }
  Executable run(const std::map<std::string, void*>& bound = {}, bool outside = false) {
    return Executable(plan(outside), backend_, HostWeights({{"w", w()}}), bound);
  }

  std::vector<float> values_ = std::vector<float>(20, 1);
  std::shared_ptr<Backend> backend_ = make_backend("cpu", {2});
};

TEST_F(Misuse, ANumberForATensor) {
  Executable e = run();
  refused("[x] is f32[5,4], not one number", [&] { e.set_scalar("x", 2); });
  e.set_scalar("s", 2);
  e.set("x", values_);
  e.run_all();
  EXPECT_EQ(e.get("y"), std::vector<float>(15, 8));
}

TEST_F(Misuse, MemoryWithoutAnAddress) {
  Executable e = run();
  refused("[x] got no address", [&] { e.set("x", HostView{DType::F32, {5, 4}, nullptr}); });
  refused("[y] was bound to no address", [&] { run({{"y", nullptr}}); });
  Executable outside = run({{"x", values_.data()}, {"y", values_.data()}}, true);
  refused("[x] was bound to no address", [&] { outside.bind({{"x", nullptr}}); });
  const HostWeights none({{"w", {DType::F32, {3, 4}, nullptr}}});
  refused(
      "[w] weight has no address", [&] { Executable(plan(), backend_, none); }, ErrorKind::Model);
}

TEST_F(Misuse, ARefusedBindingChangesNothing) {
  std::vector<float> x(20, 2), other(20, 5), y(15);
  Executable e = run({{"x", x.data()}, {"y", y.data()}}, true);
  refused("[plan] no buffer 'z' in this plan", [&] { e.bind({{"x", other.data()}, {"z", other.data()}}); });
  EXPECT_EQ(e.address("x"), x.data());
}

TEST_F(Misuse, MemoryForANameThatThePlanDoesNotHave) {
  refused("[plan] no buffer 'z' in this plan", [&] { run({{"z", values_.data()}}); });
  refused("[plan] no buffer 'w' in this plan", [&] { run({{"w", values_.data()}}); });
}

TEST_F(Misuse, NothingToRunOn) {
  refused("[weights] need a backend", [&] { Executable(plan(), std::shared_ptr<Backend>(), HostWeights()); });
  refused("[plan] needs a store of weights", [&] { Executable(plan(), std::shared_ptr<WeightStore>()); });
  const auto store = std::make_shared<WeightStore>(backend_, nullptr);
  refused(
      "[weights] no tensor 'w'", [&] { Executable(plan(), store); }, ErrorKind::Model);
}

TEST_F(Misuse, AnArenaOfAnotherBackend) {
  const auto arena = std::make_shared<Arena>(make_backend("null"));
  const auto store = std::make_shared<WeightStore>(backend_, std::make_shared<HostWeights>());
  refused("[plan] its arena is on another backend", [&] { Executable(plan(), store, {}, nullptr, nullptr, arena); });
}

TEST_F(Misuse, AStreamOfAnotherBackend) {
  class Foreign : public Stream {};
  const auto foreign = std::make_shared<Foreign>();
  const auto store = std::make_shared<WeightStore>(backend_, std::make_shared<HostWeights>(HostWeights({{"w", w()}})));
  refused("[plan] its stream is of another backend", [&] { Executable(plan(), store, {}, foreign); });
  Executable e(plan(), store);
  refused("[plan] its stream is of another backend", [&] { e.start(foreign); });
  e.start(backend_->make_stream());
}

TEST_F(Misuse, RunsThatThePlanDoesNotHave) {
  Executable e = run();
  refused("[plan] has no phase 'schedule'", [&] { e.run(Rate::Schedule); });
  refused("[plan] cannot run -1 times", [&] { e.enqueue(Rate::Step, -1); });
  e.enqueue(Rate::Step, 0);
}

TEST_F(Misuse, AnExecutableThatWasMovedFrom) {
  Executable e = run();
  const Executable other = std::move(e);
  EXPECT_EQ(other.plan().name, "plan");
  const std::string text = "[executable] was moved from and can only be destroyed or assigned to";
  refused(text, [&] { e.run(); });  // NOLINT(bugprone-use-after-move): what is tested
  refused(text, [&] { e.get("y"); });
  refused(text, [&] { static_cast<void>(e.stream()); });
}

TEST_F(Misuse, RereadingAnUnknownParameter) {
  const auto store = std::make_shared<WeightStore>(backend_, std::make_shared<HostWeights>(HostWeights({{"w", w()}})));
  store->reread({"w"});  // nothing is made from it yet
  refused(
      "[weights] no tensor 'v'", [&] { store->reread({"v"}); }, ErrorKind::Model);
  const std::vector<float> twos(12, 2);
  store->update("w", HostView{DType::F32, {3, 4}, twos.data()});
  refused(
      "[weights] no tensor 'z'",
      [&] {
        store->reread({"w", "z"});
      },
      ErrorKind::Model);
  Executable e(plan(), store);
  e.set("x", values_);
  e.set_scalar("s", 1);
  e.run_all();
  EXPECT_EQ(e.get("y"), std::vector<float>(15, 8)) << "the update went with the refused call";
}

TEST_F(Misuse, OptionsOfAnotherBackend) {
  refused(
      "[device] no device 2: 'cpu' has only one", [] { make_backend("cpu", {.ordinal = 2}); }, ErrorKind::Device);
  refused(
      "[device] no device -1: 'null' has only one", [] { make_backend("null", {.ordinal = -1}); }, ErrorKind::Device);
  refused("[offline compiler] expected one of cuda, found 'cpu', which compiles for no architecture",
          [] { make_offline_compiler("cpu", {.architecture = "sm_90a"}); });
}

TEST_F(Misuse, AnUpdateWithoutAnAddressChangesNothing) {
  auto source = std::make_shared<HostWeights>();
  source->add("w", w());
  const auto store = std::make_shared<WeightStore>(backend_, source);
  Executable e(plan(), store);
  const auto refuses = [&](const std::function<void()>& f) {
    refused("[w] weight has no address", f, ErrorKind::Model);
  };
  refuses([&] { store->update("w", HostView{DType::F32, {3, 4}, nullptr}); });
  refuses([&] { store->update(std::array{WeightStore::DeviceTensor{"w", DType::F32, {3, 4}, nullptr}}); });
  e.set("x", values_);
  e.set_scalar("s", 1);
  e.run_all();
  EXPECT_EQ(e.get("y"), std::vector<float>(15, 4));
}

TEST_F(Misuse, ANegativeNumberOfThreads) {
  refused("[threads] expected 1 to 1024, got -1", [] { make_backend("cpu", {.threads = -1}); });
}

}  // namespace
}  // namespace tenon
