// Views that are not in the tree: a view's file is all that the oracle and the backends need.
#include "tests/skeletons/harness.h"

namespace tenon::nodes {

/// One axis rotated by some places; elements that leave at the end re-enter at the front. ints = axis, places.
struct Roll : View {
  static constexpr auto name = "roll";
  static void infer(std::span<const Expr>, const Attrs&, Shape&) {}
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    Index& i = c[static_cast<size_t>(n.attrs.ints[0])];
    const int64_t places = n.attrs.ints[1], rest = n.shape[static_cast<int>(n.attrs.ints[0])] - places;
    a.part(i, std::array{places, rest}, [&](int part, Index place) {
      i = part ? place : a.plus(place, rest);
      a.read(0, c);
    });
  }
  static Expr inverse(const Node& n, const Expr& y);
};

/// The last axis with a zero after every element.
struct Spread : View {
  static constexpr auto name = "spread";
  static void infer(std::span<const Expr>, const Attrs&, Shape& shape) { shape[-1] *= 2; }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    Index& i = c[static_cast<size_t>(n.shape.rank() - 1)];
    const auto [element, place] = a.halved(i);
    a.inside(place, 0, 1);
    i = element;
    a.read(0, c);
  }
  static std::vector<Expr> vjp(const Expr&, const Expr&) { return {Expr()}; }
};

}  // namespace tenon::nodes

namespace tenon::launches {
namespace {

Expr roll(const Expr& x, int64_t axis, int64_t places) { return make_node<nodes::Roll>({x}, {.ints = {axis, places}}); }
Expr spread(const Expr& x) { return make_node<nodes::Spread>({x}); }

using NewView = LaunchTest;

constexpr Rounding kRounded = {DType::BF16, DType::BF16, 96, 4};

TEST_F(NewView, Meaning) {
  const Expr x = input(g, "x", DType::F32, {2, 3});
  Oracle oracle({{"x", HostTensor::from(DType::F32, {2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6})}});
  EXPECT_EQ(oracle.eval(roll(x, 1, 1)), (std::vector<double>{3, 1, 2, 6, 4, 5}));
  EXPECT_EQ(oracle.eval(spread(x)), (std::vector<double>{1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0}));
}

TEST_F(NewView, Map) {
  const Expr x = input(g, "x", DType::BF16, {3, 10, 48});
  for (int64_t axis : {0, 1, 2})
    expect(launch("map", {{numbered("rolled", axis), cast(silu(roll(x, axis, 1 + axis)) + x, DType::BF16)}}),
           {DType::BF16});
  expect(launch("map", {{"whole", roll(x, 2, 8)}}), {DType::BF16});
  expect(launch("map", {{"spread", spread(x)}}), {DType::BF16});
  expect(launch("map", {{"both", spread(roll(pair_swap(x), 1, 3))}}), {DType::BF16});
}

TEST_F(NewView, Product) {
  const Expr x = input(g, "x", DType::BF16, {70, 96}), w = weight("w", DType::BF16, {80, 96});
  const Expr half = input(g, "half", DType::BF16, {70, 48}), r = input(g, "r", DType::BF16, {70, 80});
  const auto of = [](const Expr& a, const Expr& b) { return cast(linear(a, b), DType::BF16); };
  expect(launch("gemm", {{"rolled", of(roll(x, 1, 8), roll(w, 0, 16))}}), kRounded);
  expect(launch("gemm", {{"spread", of(spread(half), w)}}), kRounded);
  expect(launch("gemm", {{"residual", cast(linear(x, w) + roll(r, 0, 7), DType::BF16)}}), kRounded);
  expect(launch("gemm", {{"stored", roll(of(x, w), 1, 24)}}), kRounded);
}

}  // namespace
}  // namespace tenon::launches

namespace tenon {

Expr nodes::Roll::inverse(const Node& n, const Expr& y) {
  const int axis = static_cast<int>(n.attrs.ints[0]);
  return launches::roll(y, axis, n.shape[axis] - n.attrs.ints[1]);
}

}  // namespace tenon
