// Single steps with all types, lengths, offsets, lists, options.
#include "tenon/core/error.h"
#include "tests/optim/lion_harness.h"

namespace tenon::optim {
namespace {

void expect_step(const Ground& ground, const LionTypes& types, const std::vector<int64_t>& counts,
                 const LionOptions& options, int offset = 0, unsigned seed = 1) {
  Lion lion(ground.backend, types);
  TensorList list(ground.backend, types, counts, offset);
  list.fill(seed);
  const TensorList before = list;
  list.step(lion, options);
  expect_plain_step(before, list, types, options, ground.name);
}

LionOptions decaying() {
  LionOptions o;
  o.lr = 1e-2;
  o.weight_decay = 0.1;
  return o;
}

// Two steps, from NumPy in f32 with 1 - beta computed in double: every bit must match. In elements 1, 2 and 4 of the
// first step the update cancels in real numbers, and its sign comes only from the rounding of beta.
TEST(Lion, GoldenVector) {
  const float p0[] = {1, -2, .5f, 0, 3, -1}, m0[] = {0, .5f, -.5f, 0, 1, .1f}, g[] = {.3f, -4.5f, 4.5f, 0, -9, -.95f};
  const float p1[] = {0.989000022f, -1.98800004f, 0.489500016f, 0, 3.00699997f, -0.989000022f};
  const float m1[] = {0.00300000003f, 0.450000018f, -0.450000018f, 0, 0.900000036f, 0.0895000026f};
  const float p2[] = {0.978011072f, -1.97601211f, 0.479010522f, 0, 3.01399302f, -0.978011072f};
  const float m2[] = {0.00597000029f, 0.400500029f, -0.400500029f, 0, 0.801000059f, 0.0791050047f};
  for (const Ground& ground : grounds()) {
    Lion lion(ground.backend, {});
    TensorList list(ground.backend, {}, {6});
    for (int i = 0; i < 6; ++i) {
      list.set(TensorList::Param, 0, i, static_cast<double>(p0[i]));
      list.set(TensorList::ExpAvg, 0, i, static_cast<double>(m0[i]));
      list.set(TensorList::Grad, 0, i, static_cast<double>(g[i]));
    }
    for (const auto& [p, m] : {std::pair{p1, m1}, std::pair{p2, m2}}) {
      list.step(lion, decaying());
      for (int i = 0; i < 6; ++i) {
        EXPECT_EQ(list.get(TensorList::Param, 0, i), p[i]) << ground.name << ", element " << i;
        EXPECT_EQ(list.get(TensorList::ExpAvg, 0, i), m[i]) << ground.name << ", element " << i;
      }
    }
  }
}

TEST(Lion, LengthsAndOffsets) {
  for (const Ground& ground : grounds())
    for (const int offset : {0, 1, 2, 3, 4, 7})
      expect_step(ground, {}, {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 255, 256, 1000, 1023, 1025},
                  decaying(), offset);
}

TEST(Lion, LongTensors) {
  for (const Ground& ground : grounds()) expect_step(ground, {}, {4096, 4097, 70001, 1}, decaying());
}

TEST(Lion, Types) {
  const DType halves[] = {DType::BF16, DType::F16};
  for (const Ground& ground : grounds())
    for (const DType t : halves)
      for (const int offset : {0, 1, 3}) {
        expect_step(ground, LionTypes::all(t), {5, 64, 1025}, decaying(), offset);
        expect_step(ground, LionTypes::all(t, true), {5, 64, 1025}, decaying(), offset);
        expect_step(ground, {t, DType::F32, t, true}, {5, 64, 1025}, decaying(), offset);
        expect_step(ground, {t, DType::F32, DType::F32, false}, {5, 64, 1025}, decaying(), offset);
      }
}

TEST(Lion, Options) {
  for (const Ground& ground : grounds())
    for (const double lr : {0.0, 1e-8, 1e-4, 1.0, 7.0})
      for (const double wd : {0.0, 0.01, 1.0})
        for (const double beta : {0.0, 0.5, 0.9, 0.999999})
          for (const bool maximize : {false, true}) {
            LionOptions o;
            o.lr = lr, o.weight_decay = wd, o.beta1 = beta, o.beta2 = 1 - beta * 0.5, o.maximize = maximize;
            if (o.beta2 == 1) o.beta2 = 0.25;
            expect_step(ground, {}, {37}, o);
          }
}

TEST(Lion, ListsOfManyTensors) {
  for (const Ground& ground : grounds())
    for (const size_t tensors : {0u, 1u, 2u, 95u, 97u, 300u, 600u, 1700u}) {
      std::vector<int64_t> counts;
      for (size_t t = 0; t < tensors; ++t) counts.push_back(static_cast<int64_t>(t * 7919 % 23));  // some are empty
      expect_step(ground, {}, counts, decaying());
    }
}

TEST(Lion, OneLionServesEveryList) {
  for (const Ground& ground : grounds()) {
    Lion lion(ground.backend, {});
    for (const std::vector<int64_t>& counts : {std::vector<int64_t>{3, 9}, {0, 0, 0}, {100}, {1, 2, 3, 4, 5}}) {
      TensorList list(ground.backend, {}, counts);
      list.fill(9);
      const TensorList before = list;
      list.step(lion, decaying());
      expect_plain_step(before, list, {}, decaying(), ground.name);
    }
  }
}

TEST(Lion, NothingMovesWithoutGradientAndMomentum) {
  for (const Ground& ground : grounds()) {
    Lion lion(ground.backend, {});
    TensorList list(ground.backend, {}, {33});
    list.fill(3);
    for (int i = 0; i < 33; ++i) {
      list.set(TensorList::ExpAvg, 0, i, i % 2 ? 0.0 : -0.0);
      list.set(TensorList::Grad, 0, i, i % 3 ? 0.0 : -0.0);
    }
    float want = list.get(TensorList::Param, 0, 7);
    for (int step = 0; step < 20; ++step) {
      list.step(lion, decaying());
      want *= static_cast<float>(1 - 1e-2 * 0.1);
      ASSERT_EQ(list.get(TensorList::Param, 0, 7), want) << ground.name;
      ASSERT_EQ(list.get(TensorList::ExpAvg, 0, 7), 0.0f) << ground.name;
    }
  }
}

TEST(Lion, SaysWhatItRuns) {
  for (const Ground& ground : grounds()) {
    const std::string text = Lion(ground.backend, {}).explain();
    EXPECT_NE(text.find("20 bytes an element"), std::string::npos) << text;
    EXPECT_NE(text.find("sign"), std::string::npos) << text;
  }
}

void expect_refused(const std::function<void()>& call, const std::string& names) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << names;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(names), std::string::npos) << e.what();
  }
}

TEST(Lion, RefusesBadArguments) {
  const Ground& ground = grounds().front();
  expect_refused([&] { Lion(nullptr, {}); }, "backend");
  expect_refused([&] { Lion(ground.backend, LionTypes::all(DType::I32)); }, "i32");
  expect_refused([&] { Lion(ground.backend, LionTypes::all(DType::F32, true)); }, "master");
  Lion lion(ground.backend, {}), mastered(ground.backend, LionTypes::all(DType::BF16, true));
  TensorList list(ground.backend, {}, {8});
  list.fill(1);
  list.upload();
  const std::vector<std::byte> before = list.bytes();
  const auto with = [&](auto change) {
    LionOptions o;
    change(o);
    return [&, o] { lion.step(list.stream(), list.tensors(), o); };
  };
  expect_refused(with([](LionOptions& o) { o.lr = -1; }), "lr");
  expect_refused(with([](LionOptions& o) { o.lr = NAN; }), "lr");
  expect_refused(with([](LionOptions& o) { o.beta1 = 1; }), "beta1");
  expect_refused(with([](LionOptions& o) { o.beta2 = -0.1; }), "beta2");
  expect_refused(with([](LionOptions& o) { o.weight_decay = INFINITY; }), "weight_decay");
  std::vector<LionTensor> tensors = list.tensors();
  tensors[0].grad = nullptr;
  expect_refused([&] { lion.step(list.stream(), tensors, {}); }, "tensor 0");
  expect_refused([&] { mastered.step(list.stream(), list.tensors(), {}); }, "master");
  tensors[0].count = -1;
  expect_refused([&] { lion.step(list.stream(), tensors, {}); }, "count");
  list.download();
  EXPECT_EQ(list.bytes(), before);
}

TEST(Lion, MovedFromIsRefusedUntilAssignedTo) {
  const Ground& ground = grounds().front();
  Lion lion(ground.backend, {});
  const Lion other = std::move(lion);
  EXPECT_EQ(other.types(), LionTypes());
  // NOLINTNEXTLINE(bugprone-use-after-move): what is tested
  expect_refused([&] { lion.types(); }, "[lion] was moved from and can only be destroyed or assigned to");
  lion = Lion(ground.backend, LionTypes::all(DType::BF16));
  EXPECT_EQ(lion.types(), LionTypes::all(DType::BF16));
}

}  // namespace
}  // namespace tenon::optim
