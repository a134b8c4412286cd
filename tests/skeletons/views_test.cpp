// Views that reverse and swap elements, wherever a launch reads or writes through views.
#include "tests/skeletons/harness.h"

namespace tenon::launches {
namespace {

using Views = LaunchTest;

constexpr Rounding kProduct = {DType::BF16, DType::BF16, 96, 4};

/// x rotated by angles: interleaved rotary position embedding (Su et al., "RoFormer", 2021, eq. 34). The pair (2i, 2i +
/// 1) is rotated by the angle whose cosine and sine are stored for both; `sine` has the minus at 2i.
Expr rotated(const Expr& x, const Expr& cosine, const Expr& sine) { return x * cosine + pair_swap(x) * sine; }

TEST_F(Views, MapOfEveryTypeAndTail) {
  for (DType t : {DType::F32, DType::BF16, DType::F16, DType::E4M3})
    for (int64_t cols : {2, 6, 40, 64, 78}) {
      const std::string id = numbered(std::string(name_of(t)), cols);
      const Expr x = input(g, id + ".x", t, {3, 5, cols});
      expect(launch("map", {{id + ".swap", cast(silu(pair_swap(x)) + x, t)}}), {t});
      for (int axis : {0, 1, 2})
        expect(launch("map", {{numbered(id + ".flip", axis), cast(silu(flip(x, axis)) * 0.5, t)}}), {t});
    }
}

TEST_F(Views, MapThroughOtherViews) {
  const Expr x = input(g, "x", DType::BF16, {2, 6, 5, 24}), y = input(g, "y", DType::BF16, {2, 6, 5, 16});
  const Expr both = concat({pair_swap(x), flip(y, 3)}, -1);
  expect(launch("map", {{"up", cast(silu(flip(upsample2x(both), 2)), DType::BF16)}}), {DType::BF16});
  expect(launch("map", {{"joined", flip(pair_swap(concat({x, y}, 1 + 2)), 3)}}), {DType::BF16});
  expect(launch("map", {{"padded", flip(pad(flip(x, 2), {0, 0, 1, 2, 2, 0, 0, 0}), 1)}}), {DType::BF16});
  expect(launch("map", {{"inner", pair_swap(pad(x, {0, 0, 0, 0, 0, 0, 3, 1}))}}), {DType::BF16});
  expect(launch("map", {{"odd", pair_swap(slice(x, 3, 1, 9))}}), {DType::BF16});
  expect(launch("map", {{"split", flip(reshape(pair_swap(reshape(x, {12, 120})), {2, 6, 5, 24}), 1)}}), {DType::BF16});
  expect(launch("map", {{"resized", flip(resize_nearest(flip(x, 1), 8, 7), 2)}}), {DType::BF16});
  expect(launch("map", {{"stored", pair_swap(permute(flip(x + 1.0, 0), {0, 3, 2, 1}))}}), {});
}

TEST_F(Views, MapOfGatheredRows) {
  std::vector<double> ids(24);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>(i * 11 % 50);
  tensors.emplace("rows", HostTensor::from(DType::I32, {4, 6}, ids));
  const Expr rows = input(g, "rows", DType::I32, {4, 6}), table = input(g, "table", DType::BF16, {50, 48});
  expect(launch("map", {{"y", pair_swap(gather(table, flip(rows, 1)))}}), {DType::BF16});
  expect(launch("map", {{"z", flip(gather(flip(table, 0), rows), 2)}}), {DType::BF16});
}

TEST_F(Views, RowsOfHeads) {
  // The norm of each head, then its rotation: one launch, though the rotation reads the norm's result with pairs
  // swapped.
  const Expr x = input(g, "x", DType::BF16, {2, 30, 4, 64}), gamma = param(g, "gamma", DType::BF16, {64});
  const Expr cosine = input(g, "cos", DType::F32, {30, 1, 64}), sine = input(g, "sin", DType::F32, {30, 1, 64});
  const Expr normed = x * rsqrt(mean(x * x) + 1e-6) * gamma;
  expect(launch("rows", {{"y", cast(rotated(normed, cosine, sine), DType::BF16)}}), {DType::BF16, DType::F32, 64});
  expect(launch("rows", {{"z", cast(flip(normed, 3) + flip(normed, 2), DType::BF16)}}), {DType::BF16, DType::F32, 64});
}

TEST_F(Views, ProductPrologue) {
  const Expr x = input(g, "x", DType::BF16, {2, 70, 96}), w = weight("w", DType::BF16, {80, 96});
  const Expr cosine = input(g, "cos", DType::F32, {70, 96}), sine = input(g, "sin", DType::F32, {70, 96});
  const auto of = [&](const Expr& a, const Expr& b) { return cast(linear(a, b), DType::BF16); };
  expect(launch("gemm", {{"rotated", of(cast(rotated(x, cosine, sine), DType::BF16), w)}}), kProduct);
  expect(launch("gemm", {{"swapped", of(pair_swap(x), w)}}), kProduct);
  for (int axis : {0, 1, 2}) expect(launch("gemm", {{numbered("flipped", axis), of(flip(x, axis), w)}}), kProduct);
  for (int axis : {0, 1}) expect(launch("gemm", {{numbered("weight", axis), of(x, flip(w, axis))}}), kProduct);
  expect(launch("gemm", {{"weights", of(x, pair_swap(w))}}), kProduct);
}

// Parts of an operand, last part first.
TEST_F(Views, ProductOfJoinedOperands) {
  const Expr w = weight("w", DType::BF16, {80, 96});
  const auto of = [&](const Expr& a, const Expr& b) { return cast(linear(a, b), DType::BF16); };
  const Expr top = input(g, "top", DType::BF16, {40, 96}), end = input(g, "end", DType::BF16, {30, 96});
  expect(launch("gemm", {{"rows", of(flip(concat({top, end}, 0), 0), w)}}), kProduct);
  const Expr left = input(g, "left", DType::BF16, {70, 1, 48}), right = input(g, "right", DType::BF16, {70, 1, 48});
  expect(launch("gemm", {{"columns", of(reshape(flip(concat({left, right}, 1), 1), {70, 96}), w)}}), kProduct);
  expect(launch("gemm", {{"weights", of(top, flip(concat({w, end}, 0), 0))}}), kProduct);
}

TEST_F(Views, ProductOfRowsUpwards) {
  for (DType t : {DType::F32, DType::BF16}) {
    const std::string id(name_of(t));
    const Expr x = input(g, id + ".x", t, {70, 96}), w = weight(id + ".w", t, {80, 96});
    expect(launch("gemm", {{id + ".y", cast(linear(flip(x, 0), w), t)}}), {t, t, 96, 4});
    expect(launch("gemm", {{id + ".z", flip(cast(linear(x, w), t), 0)}}), {t, t, 96, 4});
  }
}

TEST_F(Views, ProductEpilogue) {
  const Expr x = input(g, "x", DType::BF16, {2, 70, 96}), w = weight("w", DType::BF16, {80, 96});
  const Expr r = input(g, "r", DType::BF16, {2, 70, 80}), b = param(g, "b", DType::BF16, {80});
  const Expr y = linear(x, w);
  expect(launch("gemm", {{"residual", cast(y + pair_swap(r) + flip(r, 2), DType::BF16)}}), kProduct);
  expect(launch("gemm", {{"bias", cast(y + flip(b, 0) + flip(r, 1), DType::BF16)}}), kProduct);
  expect(launch("gemm", {{"swapped", pair_swap(cast(silu(y), DType::BF16))}}), kProduct);
  for (int axis : {0, 1, 2})
    expect(launch("gemm", {{numbered("flipped", axis), flip(cast(y + r, DType::BF16), axis)}}), kProduct);
  expect(launch("gemm",
                {{"heads", permute(reshape(pair_swap(flip(cast(y, DType::BF16), 2)), {2, 70, 5, 16}), {0, 2, 1, 3})}}),
         kProduct);
}

TEST_F(Views, Convolution) {
  const Expr x = input(g, "x", DType::BF16, {2, 12, 10, 32}), w = weight("w", DType::BF16, {48, 32, 3, 3});
  const Expr r = input(g, "r", DType::BF16, {2, 12, 10, 48});
  const Rounding rounding = {DType::BF16, DType::BF16, 288, 4};
  const auto of = [&](const Expr& a, const Expr& b) { return conv2d(a, b, 1, {1, 1, 1, 1}); };
  for (int axis : {0, 1, 2, 3})
    expect(launch("conv2d", {{numbered("flip", axis), cast(of(flip(x, axis), w) + flip(r, axis), DType::BF16)}}),
           rounding);
  const Expr one = input(g, "one", DType::BF16, {1, 12, 10, 32});
  expect(launch("conv2d", {{"turned", cast(of(flip(flip(one, 1), 2), w), DType::BF16)}}), rounding);
  expect(launch("conv2d", {{"swap", pair_swap(cast(of(pair_swap(x), flip(w, 0)), DType::BF16))}}), rounding);
  expect(launch("conv2d", {{"mirrored", flip(cast(of(x, flip(flip(w, 2), 3)), DType::BF16), 2)}}), rounding);
}

TEST_F(Views, RotatedHeadsInAttention) {
  const Expr qkv = input(g, "qkv", DType::BF16, {2, 50, 3 * 128});
  const Expr cosine = input(g, "cos", DType::F32, {50, 32}), sine = input(g, "sin", DType::F32, {50, 32});
  const auto head = [&](int i) {
    return permute(reshape(slice(qkv, -1, i * 128, i * 128 + 128), {2, 50, 4, 32}), {0, 2, 1, 3});
  };
  const auto turned = [&](const Expr& x) { return cast(rotated(x, cosine, sine), DType::BF16); };
  const Rounding rounding = {DType::BF16, DType::BF16, 50, 2};
  expect(
      launch("attention", {{"y", cast(attention(turned(head(0)), turned(head(1)), head(2), 0.18, true), DType::BF16)}}),
      rounding);
  for (int axis : {1, 2, 3}) {
    const Expr o = attention(flip(head(0), axis), flip(head(1), axis), pair_swap(head(2)), 0.18);
    expect(launch("attention", {{numbered("flip", axis), flip(cast(o, DType::BF16), axis)}}), rounding);
  }
}

}  // namespace
}  // namespace tenon::launches
