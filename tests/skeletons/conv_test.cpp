// The conv2d skeleton.
#include <cmath>

#include "tests/skeletons/harness.h"

namespace tenon::launches {
namespace {

using Conv = LaunchTest;

TEST_F(Conv, KernelsStridesAndTails) {
  struct Case {
    int64_t h, w, c, o, k, stride;
    std::array<int64_t, 4> pads;
  };
  for (DType t : {DType::BF16, DType::F32})
    for (const Case& s : {Case{9, 11, 4, 20, 3, 1, {1, 1, 1, 1}},
                          {8, 8, 40, 33, 3, 2, {1, 1, 1, 1}},
                          {8, 8, 32, 16, 3, 2, {0, 0, 1, 1}},
                          {7, 9, 64, 70, 1, 1, {0, 0, 0, 0}},
                          {8, 6, 24, 8, 1, 2, {0, 0, 0, 0}},
                          {12, 12, 3, 24, 5, 1, {2, 2, 2, 2}}}) {
      const std::string id = numbered(numbered(numbered(std::string(name_of(t)), s.c), s.o), s.stride * 10 + s.k);
      const Expr x = input(g, id + ".x", t, {2, s.h, s.w, s.c}), w = weight(id + ".w", t, {s.o, s.c, s.k, s.k});
      const Expr b = param(g, id + ".b", t, {s.o});
      expect(launch("conv2d", {{id, cast(conv2d(x, w, s.stride, s.pads) + b, t)}}), {t, t, s.c * s.k * s.k, 4});
    }
}

TEST_F(Conv, GroupNormAndSiluInTheHole) {
  // Statistics of the producer give scale and shift; padding is applied after the maths.
  const Expr x = input(g, "x", DType::BF16, {2, 10, 12, 64}), w = weight("w", DType::BF16, {48, 64, 3, 3});
  const Expr sums = sum(x, ReduceOver::Inner), squares = sumsq(x, ReduceOver::Inner);
  const HostTensor values = random_tensor(DType::BF16, {2, 10, 12, 64}, 12);
  tensors.emplace("x", values);
  Oracle oracle(tensors);
  tensors.emplace("sum", HostTensor::from(DType::F32, {2, 1, 1, 64}, oracle.eval(sums)));
  tensors.emplace("sq", HostTensor::from(DType::F32, {2, 1, 1, 64}, oracle.eval(squares)));
  const auto grouped = [&](const char* name) {
    return sum(reshape(input(g, name, DType::F32, {2, 1, 1, 64}), {2, 8, 8})) * (1.0 / 960);
  };
  const Expr mu = grouped("sum"), rstd = rsqrt(grouped("sq") - mu * mu + 1e-5);
  const auto channels = [&](const Expr& e) { return reshape(broadcast(e, {2, 8, 8}), {2, 1, 1, 64}); };
  const Expr gamma = param(g, "gamma", DType::BF16, {64}), beta = param(g, "beta", DType::BF16, {64});
  const Expr scale = channels(rstd) * gamma, shift = beta - channels(mu) * scale;
  const Expr h = cast(silu(x * scale + shift), DType::BF16);
  const Expr time = input(g, "time", DType::F32, {2, 1, 1, 48}), r = input(g, "r", DType::BF16, {2, 10, 12, 48});
  const Rounding t = {DType::BF16, DType::BF16, 576, 4};
  expect(launch("conv2d", {{"y", cast(conv2d(h, w, 1, {1, 1, 1, 1}) + time + r, DType::BF16)}}), t);
}

TEST_F(Conv, ViewsInTheHole) {
  const Expr a = input(g, "a", DType::BF16, {2, 6, 7, 40}), b = input(g, "b", DType::BF16, {2, 6, 7, 24});
  const Expr w = weight("w", DType::BF16, {32, 64, 3, 3});
  const Rounding t = {DType::F32, DType::BF16, 576, 4};
  expect(launch("conv2d", {{"y", conv2d(concat({a, b}, 3), w, 1, {1, 1, 1, 1})}}), t);
  expect(launch("conv2d", {{"y", conv2d(upsample2x(concat({a, b}, 3)), w, 1, {1, 1, 1, 1})}}), t);
  const Expr n = permute(input(g, "n", DType::F32, {2, 4, 9, 8}), {0, 2, 3, 1});
  expect(launch("conv2d", {{"y", conv2d(n, weight("v", DType::F32, {20, 4, 3, 3}), 1, {1, 1, 1, 1})}}),
         {DType::F32, DType::F32, 36, 4});
}

// An input read at twice its size; backends may sum the filter taps that read the same pixel, which rounds once more.
TEST_F(Conv, TwiceTheSize) {
  for (DType t : {DType::BF16, DType::F16})
    for (const auto& [height, width, channels] : {std::tuple{6, 7, 64}, {1, 1, 64}, {9, 20, 192}}) {
      const std::string id = std::to_string(channels) + "x" + std::to_string(width) + std::string(name_of(t));
      const Expr x = input(g, "x" + id, t, {2, height, width, channels}), w = weight("w" + id, t, {40, channels, 3, 3});
      const Expr y = conv2d(upsample2x(x), w, 1, {1, 1, 1, 1});
      // Every term is rounded here, not just one: five standard deviations of their sum.
      const double size = std::sqrt(9.0 * channels) / 4;
      expect(launch("conv2d", {{"y" + id, y}}), {DType::F32, t, 9 * channels, size});
      expect(launch("conv2d", {{"z" + id, cast(y, t)}}), {t, t, 9 * channels, size});
    }
  const Expr f = weight("f", DType::F32, {24, 64, 3, 3}), x = input(g, "xf", DType::F16, {1, 5, 6, 64});
  expect(launch("conv2d", {{"yf", conv2d(upsample2x(x), cast(f, DType::F16), 1, {1, 1, 1, 1})}}),
         {DType::F32, DType::F16, 576, 6});
}

TEST_F(Conv, ResultsThroughViewsAndStatistics) {
  const Expr x = input(g, "x", DType::BF16, {2, 9, 9, 32}), w = weight("w", DType::BF16, {48, 32, 3, 3});
  const Expr y = cast(conv2d(x, w, 1, {1, 1, 1, 1}), DType::BF16);
  expect(launch("conv2d", {{"nchw", permute(y, {0, 3, 1, 2})}}), {DType::BF16, DType::BF16, 288, 4});
  expect(launch("conv2d", {{"tokens", reshape(y, {2, 81, 48})}}), {DType::BF16, DType::BF16, 288, 4});
  expect(launch("conv2d", {{"y", y}, {"sum", sum(y, ReduceOver::Inner)}, {"sq", sumsq(y, ReduceOver::Inner)}}),
         {DType::BF16, DType::BF16, 81, 81});
}

TEST_F(Conv, MeanAndVarianceAsLanes) {
  const Expr x = input(g, "x", DType::F32, {1, 8, 8, 8}), w = weight("w", DType::F32, {8, 8, 1, 1}),
             b = param(g, "b", DType::F32, {8});
  const Expr y = conv2d(x, w) + b, noise = input(g, "noise", DType::F32, {1, 8, 8, 4});
  const Expr z = slice(y, -1, 0, 4) + exp(clamp(slice(y, -1, 4, 8), -30, 20) * 0.5) * noise;
  expect(launch("conv2d", {{"z", z}}), {DType::F32, DType::F32, 8, 64});
}

TEST_F(Conv, WeightsOfEveryKind) {
  const Expr x = input(g, "x", DType::F32, {1, 6, 6, 24});
  const Rounding t = {DType::F32, DType::F32, 216, 8};
  const Expr w = weight("w", DType::F16, {20, 24, 3, 3}), scale = param(g, "scale", DType::F32, {20, 1, 1, 1});
  expect(launch("conv2d", {{"y", conv2d(x, w, 1, {1, 1, 1, 1})}}), t);
  expect(launch("conv2d", {{"y", conv2d(x, w * scale, 1, {1, 1, 1, 1})}}), t);
  expect(launch("conv2d",
                {{"y", conv2d(x, permute(weight("p", DType::F32, {3, 3, 24, 20}), {3, 2, 0, 1}), 1, {1, 1, 1, 1})}}),
         {DType::F32, DType::F32, 216, 40});
}

// A row is a filter's last axis, one of the three that are packed together.
TEST_F(Conv, FiltersThatReduceTheirRows) {
  const auto normed = [](const Expr& w) { return w * rsqrt(mean(w * w) + 0.1); };
  const Expr x = input(g, "x", DType::F32, {1, 6, 7, 24}), large = input(g, "large", DType::F32, {1, 33, 32, 16});
  const Rounding t = {DType::F32, DType::F32, 216, 20};
  for (const auto& [kh, kw] : {std::pair<int64_t, int64_t>{3, 3}, {1, 1}, {2, 1}, {1, 5}, {5, 2}}) {
    const Shape shape = {20, 24, kh, kw};
    const std::string id = std::to_string(kh) + "x" + std::to_string(kw);
    expect(launch("conv2d", {{"y" + id, conv2d(x, normed(weight("w" + id, DType::F32, shape)))}}), t);
    expect(launch("conv2d", {{"z" + id, conv2d(x, normed(input(g, "v" + id, DType::F32, shape)), 2, {2, 1, 0, 1})}}),
           t);
  }
  expect(launch("conv2d", {{"y", conv2d(large, normed(weight("w", DType::F32, {18, 16, 3, 3})), 1, {1, 1, 1, 1})}}), t);
}

TEST_F(Conv, LargeImagesInF32) {
  // Winograd's transform of weights: from a file, through a view and folded with a scale; odd sizes, a prologue,
  // statistics.
  const Expr x = input(g, "x", DType::F32, {2, 25, 37, 40}), w = weight("w", DType::F32, {33, 40, 3, 3});
  const Expr b = param(g, "b", DType::F32, {33}), r = input(g, "r", DType::F32, {2, 25, 37, 33});
  const Rounding t = {DType::F32, DType::F32, 360, 16};
  expect(launch("conv2d", {{"y", conv2d(silu(x), w, 1, {1, 1, 1, 1}) + b + r}}), t);
  const Expr turned = permute(weight("p", DType::F16, {3, 3, 40, 24}), {3, 2, 0, 1}) * 0.05;
  expect(launch("conv2d", {{"y", conv2d(x, turned, 1, {1, 1, 1, 1})}}), t);
  const Expr y = conv2d(x, w, 1, {1, 1, 1, 1});
  expect(launch("conv2d", {{"y", y}, {"sum", sum(y, ReduceOver::Inner)}}), {DType::F32, DType::F32, 925, 925});
}

// Sides of 32,768 pixels and more, as long sequences have; padding as large.
TEST_F(Conv, LongSides) {
  for (const DType t : {DType::F32, DType::BF16}) {
    const std::string id(name_of(t));
    const Expr wide = input(g, id + ".wide", t, {1, 1, 33000, 4}), tall = input(g, id + ".tall", t, {1, 40000, 1, 4});
    const Expr w = weight(id + ".w", t, {4, 4, 1, 3}), v = weight(id + ".v", t, {4, 4, 3, 1});
    expect(launch("conv2d", {{id + ".y", conv2d(wide, w, 3, {0, 1, 0, 1})}}), {t, DType::F32, 12, 4});
    expect(launch("conv2d", {{id + ".z", conv2d(tall, v, 3, {1, 0, 33000, 0})}}), {t, DType::F32, 12, 4});
  }
}

// Filters that a launch reads from a stored result, in another order than it multiplies them, and computes from one.
TEST_F(Conv, LargeImagesWithStoredFilters) {
  const Expr x = input(g, "x", DType::F32, {1, 33, 32, 16});
  const Expr w = input(g, "w", DType::F32, {16, 20, 3, 3}, Rate::Constant);
  const Expr turned = permute(flip(flip(w, 2), 3), {1, 0, 2, 3});
  const Rounding t = {DType::F32, DType::F32, 144, 16};
  expect(launch("conv2d", {{"turned", conv2d(x, turned, 1, {1, 1, 1, 1})}}), t);
  expect(launch("conv2d", {{"computed", conv2d(x, turned * 0.5 + 0.25, 1, {1, 1, 1, 1})}}), t);
  const Expr plain = input(g, "plain", DType::F32, {20, 16, 3, 3}, Rate::Constant);
  expect(launch("conv2d", {{"plain_y", conv2d(x, plain, 1, {1, 1, 1, 1})}}), t);
}

TEST_F(Conv, NaNStaysWhereTheFilterReaches) {
  tensors.emplace("x", random_tensor(DType::BF16, {1, 9, 9, 32}, 4));
  store_element(DType::BF16, tensors.at("x").data.data(), (4 * 9 + 4) * 32 + 3, NAN);
  const Expr x = input(g, "x", DType::BF16, {1, 9, 9, 32});
  expect(launch("conv2d", {{"y", conv2d(x, weight("w", DType::BF16, {16, 32, 3, 3}), 1, {1, 1, 1, 1})}}),
         {DType::F32, DType::BF16, 288, 4}, NaN::MayBeExpected);
}

TEST_F(Conv, FullSize) {
  const Expr x = input(g, "x", DType::BF16, {1, 16, 16, 640}), w = weight("w", DType::BF16, {640, 640, 3, 3});
  expect(launch("conv2d", {{"y", cast(conv2d(cast(silu(x), DType::BF16), w, 1, {1, 1, 1, 1}), DType::BF16)}}),
         {DType::BF16, DType::BF16, 5760, 4});
}

}  // namespace
}  // namespace tenon::launches
