// Lets: computed by the blocks of the map that reads them, or by a separate call if something else reads them, they are
// large relative to the map, or the launch writes what they read.
#include "tenon/backend/cuda/codegen/lets_source.h"
#include "tests/cuda/emulated_runner.h"
#include "tests/cuda/emulator.h"

namespace tenon::launches {
namespace {

class Lets : public LaunchTest {
 protected:
  /// Sums of x over its pixels, as counted by the launch that made x.
  Expr counted(const Expr& x, const char* name, const Expr& sums) {
    Oracle oracle(tensors);
    tensors.emplace(name, HostTensor::from(DType::F32, sums.shape(), oracle.eval(sums)));
    return input(g, name, DType::F32, {x.shape()[0], 1, 1, x.shape()[-1]});
  }
  /// x normalised in groups of 8 channels; `shift` receives what was added to it.
  Expr group_norm(const std::string& id, const Shape& shape, Expr* shift = nullptr) {
    const int64_t n = shape[0], c = shape[-1], inner = shape[1] * shape[2];
    tensors.emplace(id, random_tensor(DType::BF16, shape, 12));
    const Expr x = input(g, id, DType::BF16, shape);
    const auto grouped = [&](const Expr& sums, const std::string& name) {
      return sum(reshape(counted(x, name.c_str(), sums), {n, c / 8, 8})) * (1.0 / static_cast<double>(8 * inner));
    };
    const Expr mu = grouped(sum(x, ReduceOver::Inner), id + ".sum"),
               rstd = rsqrt(grouped(sumsq(x, ReduceOver::Inner), id + ".sq") - mu * mu + 1e-5);
    const auto channels = [&](const Expr& e) { return reshape(broadcast(e, {n, c / 8, 8}), {n, 1, 1, c}); };
    const Expr gamma = param(g, id + ".gamma", DType::F32, {c}), beta = param(g, id + ".beta", DType::BF16, {c});
    const Expr scale = channels(rstd) * gamma, added = beta - channels(mu) * scale;
    if (shift) *shift = added;
    return x * scale + added;
  }
  std::string calls_of(const Launch& l) {
    std::string calls;
    run_on(std::make_shared<cuda::test::Emulator>(), l, tensors, &calls);
    return calls;
  }
  void expect_lets(const Launch& l, bool apart) {
    EXPECT_EQ(calls_of(l).find("lets") != std::string::npos, apart) << calls_of(l);
    expect(l, {DType::BF16, DType::BF16, 576, 4});
  }
};

TEST_F(Lets, InTheMapInFrontOfAProduct) {
  for (int64_t c : {64, 72, 320}) {
    const Expr h = cast(silu(group_norm(numbered("x", c), {2, 16, 16, c})), DType::BF16);
    const Expr w = weight(numbered("w", c), DType::BF16, {32, c, 1, 1});
    expect_lets(launch("conv2d", {{"y", cast(conv2d(h, w), DType::BF16)}}), false);
  }
}

TEST_F(Lets, InAMap) {
  expect_lets(launch("map", {{"y", cast(silu(group_norm("x", {3, 16, 17, 40})), DType::BF16)}}), false);
}

// Every sample has its own blocks, which compute only its lets; not if samples are small, or if a value of one sample
// reads the lets of another.
TEST_F(Lets, OfASample) {
  const auto silu_of = [&](const char* id, const Shape& s) { return silu(group_norm(id, s)); };
  expect_lets(launch("map", {{"y", cast(silu_of("x", {3, 32, 32, 40}), DType::BF16)}}), false);
  Expr shift;
  const Expr z = group_norm("z", {2, 32, 32, 64}, &shift);
  const Expr across = broadcast(reshape(shift, {2, 1, 64}), {2, 2, 512, 64});
  expect_lets(launch("map", {{"y", cast(reshape(z, {2, 2, 512, 64}) + across, DType::BF16)}}), false);
}

// A map without lets has no parts: a grid has at most 65,535 of them.
TEST_F(Lets, NoneAndNoParts) {
  const Expr x = input(g, "many", DType::F32, {70000, 4096});
  EXPECT_EQ(cuda::parts_of_lets(std::array{cuda::ProgramOutput{x * 2.0, {}, DType::F32}}, {}, x.shape()), 1);
}

TEST_F(Lets, ThatAnEpilogueReadsToo) {
  Expr shift;
  const Expr h = cast(silu(group_norm("x", {2, 16, 16, 64}, &shift)), DType::BF16);
  const Expr w = weight("w", DType::BF16, {64, 64, 1, 1});
  expect_lets(launch("conv2d", {{"y", cast(conv2d(h, w) + shift, DType::BF16)}}), true);
}

TEST_F(Lets, AsLargeAsTheMap) {
  expect_lets(launch("map", {{"y", cast(silu(group_norm("x", {2, 1, 2, 64})), DType::BF16)}}), true);
}

}  // namespace
}  // namespace tenon::launches
