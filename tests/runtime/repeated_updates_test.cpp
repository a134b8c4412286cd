// Updates of the same tensors again and again, which a device records.
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "tenon/core/error.h"
#include "tenon/core/host_tensor.h"
#include "tenon/expr/ops.h"
#include "tenon/models/hash_weights.h"
#include "tenon/runtime/executable.h"
#include "tests/runtime/places.h"
#include "tests/runtime/results.h"

namespace tenon::updates {
namespace {
using places::Place;
using places::places;
using places::plan_of;
using places::result;

const Shape kShape = {16, 24};

HostTensor drawn(const std::string& name, uint64_t seed) {
  HostTensor t = HostTensor::zeros(DType::F32, kShape);
  random_weight(name, kShape, DType::F32, 0, kShape.numel(), t.data.data(), seed);
  return t;
}

HostView tensor_view(const HostTensor& t) { return {t.dtype, t.shape, t.data.data()}; }

Plan layers(DType t) {
  Graph g;
  const Expr x = input(g, "x", t, {1, 40, 40, 24});
  return plan_of(linear(x, param(g, "q", t, kShape)) + linear(x, param(g, "k", t, kShape)));
}

// The same tensors with new values again and again, as in training: a device records the work the second time, and
// records it anew after anything else has changed.
TEST(RepeatedUpdates, AreFreshLoads) {
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    std::map<std::string, HostTensor> now{{"q", drawn("q", 0)}, {"k", drawn("k", 0)}};
    const auto loaded = [&] {
      const auto out = std::make_shared<HostWeights>();
      for (const auto& [name, tensor] : now) out->add(name, tensor_view(tensor));
      return out;
    };
    const auto store = std::make_shared<WeightStore>(place.backend, loaded());
    Executable e(layers(DType::BF16), store);
    std::optional<Executable> other;
    const auto stream = place.backend->make_stream();
    std::vector<WeightStore::DeviceTensor> all;
    for (const char* name : {"q", "k"}) all.push_back({name, DType::F32, kShape, place.backend->allocate(16 * 24 * 4)});
    const auto update = [&](uint64_t seed) {
      for (const WeightStore::DeviceTensor& t : all) {
        const HostTensor& fresh = now[t.name] = drawn(t.name, seed);
        place.backend->copy_in(*stream, const_cast<void*>(t.memory.get()), fresh.data.data(), 16 * 24 * 4);
      }
      stream->synchronize();
      store->update(all);
    };
    const auto expect_fresh = [&] {
      Executable alone(layers(DType::BF16), place.backend, *loaded());
      EXPECT_EQ(result(e), result(alone));
      if (!other) return;
      Executable alone_too(layers(DType::F32), place.backend, *loaded());
      EXPECT_EQ(result(*other), result(alone_too));
    };
    static_cast<void>(result(e)), static_cast<void>(result(e));  // recorded
    const int records = place.backend->records() ? 1 : 0;
    for (const bool more : {false, true}) {
      if (more) other.emplace(layers(DType::F32), store), static_cast<void>(result(*other));
      for (uint64_t round = 1; round <= 4; ++round) {
        const int before = place.recordings();
        const int64_t remade = store->counters().remade;
        update(round + (more ? 10 : 0));
        EXPECT_EQ(place.recordings() - before, round == 2 ? records : 0) << round;
        EXPECT_EQ(store->counters().remade - remade, more ? 4 : 2) << round;
        expect_fresh();
      }
    }
    now["q"] = drawn("q", 30);
    store->update("q", tensor_view(now["q"]));
    expect_fresh();
    update(31);
    expect_fresh();
    other.reset();
    store->release_unused();
    update(32);
    update(33);
    expect_fresh();
  }
}

// A reread that fails has dropped some updates: the next update brings them back, also for layouts made later.
TEST(RepeatedUpdates, RepairAFailedReread) {
  for (const Place& place : places()) {
    const HostTensor old_q = drawn("q", 0), k = drawn("k", 0), q = drawn("q", 1);
    const auto source = [&](const HostTensor& of_q) {
      return std::make_shared<HostWeights>(
          std::map<std::string, HostView>{{"q", tensor_view(of_q)}, {"k", tensor_view(k)}});
    };
    const auto store = std::make_shared<WeightStore>(place.backend, source(old_q));
    Executable e(layers(DType::BF16), store);
    const auto stream = place.backend->make_stream();
    const std::array tensors = {
        WeightStore::DeviceTensor{"q", DType::F32, kShape, place.backend->allocate(16 * 24 * 4)}};
    place.backend->copy_in(*stream, const_cast<void*>(tensors[0].memory.get()), q.data.data(), 16 * 24 * 4);
    for (int i = 0; i < 3; ++i) store->update(tensors);
    EXPECT_THROW(store->reread({"q", "unknown"}), Error);
    store->update(tensors);
    Executable later(layers(DType::F32), store), alone(layers(DType::F32), place.backend, *source(q));
    EXPECT_EQ(result(later), result(alone)) << place.name;
  }
}

}  // namespace
}  // namespace tenon::updates
