// Many steps, and gradients that are not finite.
#include "tenon/core/error.h"
#include "tests/optim/lion_harness.h"

namespace tenon::optim {
namespace {

// A second reference, in double: the momentum must follow it without drift, and a parameter may differ only by whole
// sign flips, 2 lr each, where the update cancels to nothing.
TEST(LionPath, ThousandSteps) {
  constexpr int kSteps = 1000, kCount = 257;
  LionOptions o;
  o.lr = 1.0 / 1024;  // so that all steps are exact in f32
  for (const Ground& ground : grounds()) {
    Lion lion(ground.backend, {});
    TensorList list(ground.backend, {}, {kCount});
    list.fill(5);
    std::vector<Element> exact;
    std::vector<double> p, m;
    for (int i = 0; i < kCount; ++i) {
      list.set(TensorList::Param, 0, i, std::round(list.get(TensorList::Param, 0, i) * 1024) / 1024);
      exact.push_back({list.get(TensorList::Param, 0, i), list.get(TensorList::ExpAvg, 0, i)});
      p.push_back(exact.back().p), m.push_back(exact.back().m);
    }
    std::mt19937 random(17);
    std::normal_distribution<float> normal;
    for (int step = 0; step < kSteps; ++step) {
      for (int i = 0; i < kCount; ++i) {
        const float g = normal(random);
        list.set(TensorList::Grad, 0, i, static_cast<double>(g));
        const size_t at = static_cast<size_t>(i);
        exact[at] = plain_step(exact[at].p, exact[at].m, g, o);
        const double u = o.beta1 * m[at] + (1 - o.beta1) * static_cast<double>(g);
        p[at] -= o.lr * (u > 0 ? 1 : u < 0 ? -1 : 0);
        m[at] = o.beta2 * m[at] + (1 - o.beta2) * static_cast<double>(g);
      }
      list.step(lion, o);
    }
    int flipped = 0;
    for (int i = 0; i < kCount; ++i) {
      const size_t at = static_cast<size_t>(i);
      EXPECT_EQ(list.get(TensorList::ExpAvg, 0, i), exact[at].m) << ground.name;
      EXPECT_EQ(list.get(TensorList::Param, 0, i), exact[at].p) << ground.name;
      EXPECT_LE(std::abs(static_cast<double>(list.get(TensorList::ExpAvg, 0, i)) - m[at]), 1e-6) << ground.name;
      const double flips = (static_cast<double>(list.get(TensorList::Param, 0, i)) - p[at]) / (2 * o.lr);
      EXPECT_LE(std::abs(flips - std::round(flips)), 1e-3) << ground.name;
      EXPECT_LE(std::abs(flips), 1.5) << ground.name;
      flipped += std::round(flips) != 0;
    }
    EXPECT_LE(flipped, 2) << ground.name;
  }
}

const double kNan = std::nan(""), kInf = INFINITY;

struct NonFiniteTest : testing::Test {
  static constexpr int64_t kBad[] = {0, 3, 17, 64, 99};
  static TensorList damaged(const Ground& ground, const LionTypes& types) {
    TensorList list(ground.backend, types, {100, 0, 40});
    list.fill(4);
    for (const int64_t i : kBad) list.set(TensorList::Grad, 0, i, i == 17 ? kInf : kNan);
    return list;
  }
};

TEST_F(NonFiniteTest, Propagates) {
  for (const Ground& ground : grounds()) {
    TensorList list = damaged(ground, {});
    const TensorList before = list;
    Lion lion(ground.backend, {});
    list.step(lion, {});
    expect_plain_step(before, list, {}, {}, ground.name);
    EXPECT_TRUE(std::isnan(list.get(TensorList::Param, 0, 3))) << ground.name;
    EXPECT_TRUE(std::isnan(list.get(TensorList::ExpAvg, 0, 3))) << ground.name;
    EXPECT_TRUE(std::isinf(list.get(TensorList::ExpAvg, 0, 17))) << ground.name;
  }
}

TEST_F(NonFiniteTest, SkipsThatElement) {
  LionOptions o;
  o.non_finite = NonFinite::Skip;
  for (const Ground& ground : grounds())
    for (const LionTypes& types : {LionTypes{}, LionTypes::all(DType::BF16), LionTypes::all(DType::BF16, true)}) {
      TensorList list = damaged(ground, types);
      list.set(TensorList::Param, 0, 3, 42);  // neither the master copy's number nor any other element's
      TensorList before = list;
      Lion lion(ground.backend, types);
      list.step(lion, o);
      for (const int64_t i : kBad)
        for (const auto role : {TensorList::Param, TensorList::ExpAvg, TensorList::Master}) {
          EXPECT_EQ(list.get(role, 0, i), before.get(role, 0, i)) << ground.name << ", element " << i;
          list.set(role, 0, i, 0);
        }
      for (const int64_t i : kBad)  // the others did their step
        for (const auto role : {TensorList::Param, TensorList::ExpAvg, TensorList::Grad, TensorList::Master}) {
          list.set(role, 0, i, 0);
          before.set(role, 0, i, 0);
        }
      expect_plain_step(before, list, types, o, ground.name);
    }
}

TEST_F(NonFiniteTest, RaisesBeforeAnythingIsWritten) {
  LionOptions o;
  o.non_finite = NonFinite::Raise;
  for (const Ground& ground : grounds()) {
    Lion lion(ground.backend, {});
    for (const size_t bad : {0u, 1u, 250u, 399u}) {
      TensorList list(ground.backend, {}, std::vector<int64_t>(400, 21));
      list.fill(4);
      for (size_t t = bad; t < 400; t += 100) list.set(TensorList::Grad, t, 20, t == bad ? -kInf : kNan);
      list.upload();
      const std::vector<std::byte> before = list.bytes();
      try {
        lion.step(list.stream(), list.tensors(), o);
        ADD_FAILURE() << ground.name << ": not raised";
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::Numeric);
        EXPECT_NE(std::string(e.what()).find("[tensor " + std::to_string(bad) + "]"), std::string::npos) << e.what();
      }
      list.download();
      EXPECT_EQ(list.bytes(), before) << ground.name;
    }
    TensorList good(ground.backend, {}, {33, 5000});
    good.fill(8);
    const TensorList before = good;
    good.step(lion, o);
    expect_plain_step(before, good, {}, o, ground.name);
  }
}

// Without a master copy, a step of 1e-4 is lost in bf16 beyond 2^-5; with one it is kept.
TEST(LionPath, MasterCopyKeepsSmallSteps) {
  for (const Ground& ground : grounds())
    for (const bool master : {false, true}) {
      const LionTypes types = LionTypes::all(DType::BF16, master);
      Lion lion(ground.backend, types);
      TensorList list(ground.backend, types, {16});
      list.fill(2);
      for (int i = 0; i < 16; ++i)
        for (const auto role : {TensorList::Param, TensorList::Grad, TensorList::ExpAvg, TensorList::Master})
          list.set(role, 0, i, 1);
      for (int step = 0; step < 100; ++step) list.step(lion, {});
      EXPECT_LE(std::abs(list.get(TensorList::Param, 0, 5) - (master ? 0.99f : 1.0f)), master ? 0.002f : 0.0f)
          << ground.name;
    }
}

}  // namespace
}  // namespace tenon::optim
