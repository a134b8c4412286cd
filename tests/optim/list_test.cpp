// Launches over lists other than optimizers: what passes share, read and replace; and what is refused.
#include <functional>
#include <map>

#include <gtest/gtest.h>
#include "tenon/backend/kernel.h"
#include "tenon/backend/list_form.h"
#include "tenon/backend/null/null_backend.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"
#include "tests/optim/backends.h"

namespace tenon::optim {
namespace {

constexpr int64_t kCount = 1000;  // whole blocks, and a tail

struct ListTest : testing::Test {
  Graph g;
  using Vectors = std::map<std::string, std::vector<float>>;

  Expr vector(const std::string& name) { return input(g, name, DType::F32, Shape{kListLength}); }
  static Vectors vectors() {
    Vectors out;
    int seed = 1;
    for (const char* name : {"a", "b", "c", "d", "y"}) {
      std::vector<float>& v = out[name];
      for (int64_t i = 0; i < kCount; ++i) v.push_back(static_cast<float>((i * 37 + seed * 101) % 211 - 105) / 64.0f);
      ++seed;
    }
    return out;
  }
  // Runs over all vectors; their numbers are 1, 2, ..
  static void run(const Ground& ground, const Launch& launch, Vectors& values) {
    const std::unique_ptr<ListKernel> kernel = ground.backend->prepare_list(launch);
    const std::shared_ptr<Stream> stream = ground.backend->make_stream();
    ListItem item;
    item.count = kCount;
    std::vector<std::shared_ptr<void>> memory;
    for (const std::string& name : kernel->vectors()) {
      memory.push_back(ground.backend->allocate(kCount * 4));
      ground.backend->copy_in(*stream, memory.back().get(), values.at(name).data(), kCount * 4);
      item.vectors[memory.size() - 1] = memory.back().get();
    }
    std::vector<float> numbers;
    for (size_t i = 0; i < kernel->scalars().size(); ++i) numbers.push_back(static_cast<float>(i + 1));
    kernel->run(*stream, std::array{item}, numbers);
    for (size_t v = 0; v < memory.size(); ++v)
      ground.backend->copy_out(*stream, values.at(kernel->vectors()[v]).data(), memory[v].get(), kCount * 4);
  }
  using Want = std::function<float(float a, float b, float c, float d)>;
  // EXPECTs the values of `output` everywhere; the numbers in the tests' vectors make every product exact.
  static void expect(const Launch& launch, const std::string& output, const Want& want) {
    const Vectors before = vectors();
    for (const Ground& ground : grounds()) {
      Vectors after = before;
      run(ground, launch, after);
      for (size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(after.at(output)[i], want(before.at("a")[i], before.at("b")[i], before.at("c")[i], before.at("d")[i]))
            << ground.name << ", element " << i << " of " << print(launch.outputs[0].value);
    }
  }
  static Launch formed(Launch l) {
    const std::optional<std::string> refused = form_launch(l);
    TENON_CHECK(Usage, !refused, l.name) << *refused;
    return l;
  }
  static Launch unformed(std::vector<Output> outputs) { return {"test", "map", std::move(outputs), {}}; }
  static Launch launch(std::vector<Output> outputs) { return formed(unformed(std::move(outputs))); }
};

TEST_F(ListTest, SumsOfProducts) {
  const Expr a = vector("a"), b = vector("b"), c = vector("c"), d = vector("d"), s = scalar(g, "s");
  const auto check = [&](const Expr& e, const Want& want) { expect(launch({{"y", e}}), "y", want); };
  check(a * b + c * d, [](float x, float y, float z, float w) { return x * y + z * w; });
  check(a * b - c * d, [](float x, float y, float z, float w) { return x * y - z * w; });
  check(a - b * c, [](float x, float y, float z, float) { return x - y * z; });
  check(a * b + c, [](float x, float y, float z, float) { return x * y + z; });
  check(a * s + b * 2.0, [](float x, float y, float, float) { return x + y * 2; });
  check(relu(a * b - c), [](float x, float y, float z, float) { return std::max(x * y - z, 0.0f); });
  check(-(a * b - c * d), [](float x, float y, float z, float w) { return -(x * y - z * w); });
  check(abs(a + b * c), [](float x, float y, float z, float) { return std::abs(x + y * z); });
  check(sign(a * b + c * d) * (a * b), [](float x, float y, float z, float w) {
    const float u = x * y + z * w;
    return (u > 0 ? 1.0f : u < 0 ? -1.0f : 0.0f) * (x * y);
  });
  const Expr shared = a * b;  // read twice, so it gets its own pass
  check((shared + c) * (shared - d), [](float x, float y, float z, float w) { return (x * y + z) * (x * y - w); });
  check(a * a + a * a, [](float x, float, float, float) { return x * x + x * x; });
}

TEST_F(ListTest, WhatIsReadBeforeItIsReplaced) {
  const Expr a = vector("a"), b = vector("b"), c = vector("c");
  const Launch swap = launch({{"a", b}, {"b", a}});
  expect(swap, "a", [](float, float y, float, float) { return y; });
  expect(swap, "b", [](float x, float, float, float) { return x; });
  const Launch turn = launch({{"a", b + c}, {"b", a * c - b}, {"c", a + b}});
  expect(turn, "a", [](float, float y, float z, float) { return y + z; });
  expect(turn, "b", [](float x, float y, float z, float) { return x * z - y; });
  expect(turn, "c", [](float x, float y, float, float) { return x + y; });
}

TEST_F(ListTest, OneResultInTwoPlaces) {
  const Expr e = vector("a") * 0.5 + vector("b");
  const Launch twice = launch({{"y", e}, {"d", e}});
  expect(twice, "y", [](float x, float y, float, float) { return x * 0.5f + y; });
  expect(twice, "d", [](float x, float y, float, float) { return x * 0.5f + y; });
}

TEST_F(ListTest, NumbersAlone) {
  const Expr s = scalar(g, "s"), t = scalar(g, "t"), any = broadcast(s, Shape{kListLength});
  expect(launch({{"y", any * 3.0 + broadcast(t, Shape{kListLength})}}), "y",
         [](float, float, float, float) { return 5.0f; });
}

TEST_F(ListTest, Refuses) {
  const Expr a = vector("a"), b = vector("b"), small = input(g, "small", DType::F32, Shape{8});
  std::vector<Output> seven;
  for (int i = 0; i < 7; ++i) seven.push_back({"v" + std::to_string(i), a + static_cast<double>(i)});
  const Launch refused[] = {
      {"gemm", "gemm", {{"y", a}}, {}},
      unformed({{"y", sum(a, ReduceOver::Last)}}),
      unformed({{"y", slice(a, 0, 0, 8)}}),
      unformed({{"y", small * 2.0}}),
      unformed({{"y", a + param(g, "weight", DType::F32, Shape{kListLength})}}),
      unformed({{"a", cast(b, DType::BF16)}, {"b", a}}),  // a is read as f32
      unformed({{kFound, a}, {"y", b}}),
      unformed(seven),
  };
  std::vector<Ground> all = grounds();
  all.push_back({"null", make_backend("null")});
  for (const Ground& ground : all)
    for (const Launch& l : refused)
      EXPECT_THROW(ground.backend->prepare_list(formed(l)), Error) << ground.name << ": " << print(l.outputs[0].value);
}

TEST_F(ListTest, NumbersAndKindsAreChecked) {
  const Launch scaled = launch({{"y", vector("a") * scalar(g, "s")}}), search = launch({{kFound, vector("a")}});
  float x[4] = {0, 0, 0, 0}, y[4] = {};
  std::vector<Ground> all = grounds();
  all.push_back({"null", make_backend("null")});
  for (const Ground& ground : all) {
    const auto kernel = ground.backend->prepare_list(scaled), looks = ground.backend->prepare_list(search);
    const std::shared_ptr<Stream> stream = ground.backend->make_stream();
    ListItem item;
    item.vectors = {x, y};
    item.count = 4;
    EXPECT_THROW(kernel->run(*stream, std::array{item}, {}), Error) << ground.name;
    EXPECT_THROW(looks->run(*stream, std::array{item}, {}), Error) << ground.name;
    EXPECT_THROW(kernel->find(*stream, std::array{item}, std::array{1.0f}), Error) << ground.name;
    EXPECT_EQ(looks->find(*stream, {}, {}), -1) << ground.name;
  }
}

TEST_F(ListTest, NullRecords) {
  const std::unique_ptr<Backend> null = make_backend("null");
  null::clear_record();
  null->prepare_list(launch({{"y", vector("a") * 2.0}}))->run(*null->make_stream(), {}, {});
  ASSERT_EQ(null::record().size(), 1u);
  EXPECT_EQ(null::record()[0], "test");
}

}  // namespace
}  // namespace tenon::optim
