// Calls of executables and stores that cannot mean anything: each is refused by name, before any memory is touched.
#include <gtest/gtest.h>

#include "tenon/expr/ops.h"
#include "tenon/runtime/executable.h"
#include "tenon/runtime/host_weights.h"
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
