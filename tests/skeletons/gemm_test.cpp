// The gemm skeleton.
#include <gmock/gmock.h>

#include "tenon/backend/cpu/launches/launch_kernel.h"
#include "tenon/backend/cpu/tile/tile_ops.h"
#include "tenon/expr/precision.h"
#include "tests/skeletons/harness.h"

namespace tenon::launches {
namespace {

using Gemm = LaunchTest;

Expr silu_norm(const Expr& x) {
  const Expr d = x - mean(x);
  return d * rsqrt(mean(d * d) + 1e-5);
}

TEST_F(Gemm, EveryStorageTypeAndTail) {
  for (DType t : {DType::F32, DType::BF16, DType::F16, DType::E4M3})
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {3, 17, 33}, {70, 40, 96}, {130, 200, 65}}) {
      const std::string id = numbered(numbered(std::string(name_of(t)), m), n);
      const Expr x = input(g, id + ".x", t, {m, k}), w = weight(id + ".w", t, {n, k});
      const Expr b = param(g, id + ".b", t == DType::E4M3 ? DType::BF16 : t, {n});
      const DType arithmetic = t == DType::BF16 ? DType::BF16 : DType::F32;
      expect(launch("gemm", {{id, cast(linear(x, w) + b, t)}}), {t, arithmetic, k, 4});
    }
}

TEST_F(Gemm, BiasResidualAndActivation) {
  const Expr x = input(g, "x", DType::BF16, {2, 150, 320}), r = input(g, "r", DType::BF16, {2, 150, 160});
  const Expr w = weight("w", DType::BF16, {160, 320}), b = param(g, "b", DType::BF16, {160});
  const Expr y = linear(x, w) + b;
  expect(launch("gemm", {{"y", cast(y + r, DType::BF16)}}), {DType::BF16, DType::BF16, 320, 4});
  expect(launch("gemm", {{"y", cast(quick_gelu(y), DType::BF16)}}), {DType::BF16, DType::BF16, 320, 4});
  expect(launch("gemm", {{"y", y}, {"z", cast(round(y, DType::BF16) * 2.0, DType::F16)}}),
         {DType::BF16, DType::BF16, 320, 4});
}

TEST_F(Gemm, LayerNormInTheHole) {
  const Expr x = input(g, "x", DType::BF16, {150, 320}), w = weight("w", DType::BF16, {96, 320});
  const Expr gamma = param(g, "gamma", DType::BF16, {320}), beta = param(g, "beta", DType::BF16, {320});
  const Expr a = cast(silu_norm(x) * gamma + beta, DType::BF16);
  expect(launch("gemm", {{"y", cast(linear(a, w), DType::BF16)}}), {DType::BF16, DType::BF16, 320, 4});
  expect(launch("gemm", {{"y", linear(silu_norm(x), w)}}), {DType::F32, DType::F32, 320, 4});
}

TEST_F(Gemm, ViewsInTheHole) {
  // Heads read in attention's layout; a skip concatenation; a slice of columns.
  const Expr o = input(g, "o", DType::BF16, {2, 4, 50, 40});
  const Expr merged = reshape(permute(o, {0, 2, 1, 3}), {2, 50, 160});
  expect(launch("gemm", {{"y", linear(merged, weight("w", DType::BF16, {80, 160}))}}),
         {DType::F32, DType::BF16, 160, 4});
  const Expr a = input(g, "a", DType::BF16, {60, 48}), b = input(g, "b", DType::BF16, {60, 40});
  expect(launch("gemm", {{"y", linear(concat({a, b}, -1), weight("v", DType::BF16, {70, 88}))}}),
         {DType::F32, DType::BF16, 88, 4});
  // Joined with a tensor that is stored in another order.
  const Expr more = input(g, "more", DType::BF16, {2, 50, 160});
  expect(launch("gemm", {{"y", linear(concat({more, merged}, -1), weight("both", DType::BF16, {80, 320}))}}),
         {DType::F32, DType::BF16, 320, 4});
  expect(launch("gemm", {{"y", linear(concat({merged, more}, -1), weight("turned", DType::BF16, {80, 320}))}}),
         {DType::F32, DType::BF16, 320, 4});
  expect(launch("gemm", {{"y", linear(slice(a, -1, 5, 45), weight("u", DType::BF16, {16, 40}))}}),
         {DType::F32, DType::BF16, 40, 4});
  expect(launch("gemm",
                {{"y", linear(transpose(input(g, "t", DType::F32, {40, 30})), weight("s", DType::F32, {16, 40}))}}),
         {DType::F32, DType::F32, 40, 4});
}

// Operands whose memory rows run along K: gradients of weights read both so, gradients of inputs read the weights so.
TEST_F(Gemm, OperandsInColumns) {
  for (DType t : {DType::BF16, DType::F16})
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{72, 40, 33}, {200, 136, 160}, {64, 264, 77}}) {
      const std::string id = numbered(numbered(std::string(name_of(t)), m), n);
      const Expr x = transpose(input(g, id + ".x", t, {k, m})), y = transpose(input(g, id + ".y", t, {k, n}));
      const Expr rows = input(g, id + ".rows", t, {m, k});
      expect(launch("gemm", {{id + " both", linear(x, y)}}), {DType::F32, t, k, 4});
      expect(launch("gemm", {{id + " b", cast(linear(rows, y) * 0.5, t)}}), {t, t, k, 4});
      expect(launch("gemm", {{id + " a", linear(x, weight(id + ".w", t, {n, k}))}}), {DType::F32, t, k, 4});
      const Expr of_weights = transpose(weight(id + ".v", t, {k / 32 * 32, n}));
      const Expr part = input(g, id + ".part", t, {2, m / 2, k / 32 * 32});
      const Expr bias = param(g, id + ".bias", t, {n}), more = input(g, id + ".more", t, {2, m / 2, n});
      expect(launch("gemm", {{id + " weights", cast(linear(part, of_weights) + bias + more, t)}}), {t, t, k, 4});
    }
  // Joined tensors, one of which ends within a block of 64.
  const Expr a = input(g, "a", DType::BF16, {150, 128}), b = input(g, "b", DType::BF16, {150, 72});
  const Expr c = input(g, "c", DType::BF16, {150, 64}), d = input(g, "d", DType::BF16, {150, 48});
  expect(launch("gemm", {{"joined", linear(transpose(concat({a, b}, -1)), transpose(concat({c, d}, -1)))}}),
         {DType::F32, DType::BF16, 150, 4});
  const Expr wide = slice(input(g, "wide", DType::BF16, {150, 256}), -1, 64, 200);
  expect(launch("gemm", {{"slice", linear(transpose(wide), transpose(c))}}), {DType::F32, DType::BF16, 150, 4});
}

// Heads side by side in a row, as columns: a head of 20 columns begins between two multiples of 16 bytes.
TEST_F(Gemm, HeadsSideBySideInColumns) {
  for (const int64_t depth : {20, 24, 64}) {
    const std::string id = std::to_string(depth);
    const Expr rows = reshape(input(g, "v" + id, DType::BF16, {2, 48, 2 * depth}), {2, 48, 2, depth});
    const Expr heads = permute(rows, {0, 2, 3, 1}), weights = input(g, "p" + id, DType::BF16, {2, 2, 72, 48});
    expect(launch("gemm", {{"y" + id, cast(linear(weights, heads), DType::BF16)}}), {DType::BF16, DType::BF16, 48, 4});
  }
}

TEST_F(Gemm, MergedSiblings) {
  const Expr x = input(g, "x", DType::BF16, {2, 77, 128});
  const Expr q = weight("q", DType::BF16, {96, 128}), k = weight("k", DType::BF16, {96, 128}),
             v = weight("v", DType::BF16, {96, 128});
  const Expr y = cast(linear(x, concat({q, k, v}, 0)), DType::BF16);
  std::vector<Output> parts;
  for (int i = 0; i < 3; ++i)
    parts.push_back(
        {numbered("part", i), permute(reshape(slice(y, -1, i * 96, i * 96 + 96), {2, 77, 3, 32}), {0, 2, 1, 3})});
  expect(launch("gemm", parts), {DType::BF16, DType::BF16, 128, 4});
  // Parts that do not begin at a panel boundary.
  const Expr odd = concat({weight("a", DType::BF16, {20, 128}), weight("b", DType::BF16, {30, 128})}, 0);
  expect(launch("gemm", {{"odd", linear(x, odd)}}), {DType::F32, DType::BF16, 128, 4});
}

TEST_F(Gemm, GegluLanes) {
  const Expr x = input(g, "x", DType::BF16, {150, 64}), w = weight("w", DType::BF16, {2 * 160, 64}),
             b = param(g, "b", DType::BF16, {2 * 160});
  const Expr y = linear(x, w) + b;
  const Expr out = slice(y, -1, 0, 160) * gelu(slice(y, -1, 160, 320));
  expect(launch("gemm", {{"y", cast(out, DType::BF16)}}), {DType::BF16, DType::BF16, 64, 16});
}

TEST_F(Gemm, WeightsOfEveryKind) {
  const Expr x = input(g, "x", DType::F32, {50, 72});
  expect(launch("gemm", {{"y", linear(x, transpose(weight("t", DType::F32, {72, 40})))}}),
         {DType::F32, DType::F32, 72, 4});
  const Expr conv = weight("conv", DType::F16, {40, 72, 1, 1});
  expect(launch("gemm", {{"y", linear(x, reshape(conv, {40, 72}))}}), {DType::F32, DType::F32, 72, 4});
  // Folded with a scale, rounded to bf16, e4m3 with row scales.
  const Expr w = weight("w", DType::F32, {40, 72}), scale = param(g, "scale", DType::F32, {40, 1});
  expect(launch("gemm", {{"y", linear(x, w * scale)}}), {DType::F32, DType::F32, 72, 4});
  expect(launch("gemm", {{"y", linear(cast(x, DType::BF16), cast(w, DType::BF16))}}), {DType::F32, DType::BF16, 72, 4});
  const Expr other = weight("other", DType::F32, {8, 72});  // next to a computed one
  expect(launch("gemm", {{"y", linear(x, concat({w * scale, other}, 0))}}), {DType::F32, DType::F32, 72, 4});
  const Expr e4 = weight("e4", DType::E4M3, {40, 72});
  expect(launch("gemm", {{"y", linear(x, e4) * reshape(scale, {40})}}), {DType::F32, DType::F32, 72, 4});
}

// Rows of both operands are e4m3 with a scale each, as from quantize_rows: the scales are applied to the sum of
// products.
class GemmE4m3 : public LaunchTest {
 protected:
  Expr scales(const std::string& name, const Shape& shape, bool constant) {
    std::vector<double> values(static_cast<size_t>(shape.numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.5 + static_cast<double>(i * 37 % 101) / 128;
    tensors.emplace(name, HostTensor::from(DType::F32, shape, values));
    return constant ? param(g, name, DType::F32, shape) : input(g, name, DType::F32, shape);
  }
  /// For sums of k products of normally distributed numbers.
  static Rounding tolerance(DType stored, int64_t k, double size = 4) {
    return {stored, DType::F32, k, size, kLostOfE4m3};
  }
};

TEST_F(GemmE4m3, RowScalesAndEveryTail) {
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{1, 1, 1}, {5, 24, 16}, {70, 40, 96}, {130, 200, 264}, {64, 96, 1000}}) {
    const std::string id = numbered(numbered("y", m), n);
    const Expr x = input(g, id + ".x", DType::E4M3, {m, k}), w = weight(id + ".w", DType::E4M3, {n, k});
    const Expr y = linear(x, w) * scales(id + ".row", {m, 1}, false) * scales(id + ".column", {n}, true);
    expect(launch("gemm", {{id, y}}), tolerance(DType::F32, k));
  }
}

TEST_F(GemmE4m3, Epilogues) {
  const Expr x = input(g, "x", DType::E4M3, {2, 150, 320}), r = input(g, "r", DType::BF16, {2, 150, 160});
  const Expr w = weight("w", DType::E4M3, {160, 320}), b = param(g, "b", DType::BF16, {160});
  const Expr y = linear(x, w) * scales("row", {2, 150, 1}, false) * scales("column", {160}, true) + b;
  expect(launch("gemm", {{"y", cast(silu(y) + r, DType::BF16)}}), tolerance(DType::BF16, 320));
  const Expr rounded = cast(y, DType::BF16);
  expect(launch("gemm", {{"y", rounded}, {"sum", sum(rounded, ReduceOver::Inner)}}),
         {DType::BF16, DType::BF16, 150, 150, kLostOfE4m3});
}

TEST_F(GemmE4m3, SwigluLanes) {
  const Expr x = input(g, "x", DType::E4M3, {150, 128});
  for (const int64_t columns : {160, 40}) {
    const std::string id = numbered("y", columns);
    const Expr y = linear(x, weight(id + ".w", DType::E4M3, {2 * columns, 128})) * scales(id + ".s", {150, 1}, false);
    const Expr out = silu(slice(y, -1, 0, columns)) * slice(y, -1, columns, 2 * columns);
    expect(launch("gemm", {{id, cast(out, DType::BF16)}}), tolerance(DType::BF16, 128, 16));
  }
}

// Computed operands, and those that the copy engine cannot load, are stored first.
TEST_F(GemmE4m3, OperandsThatAreNotRowsInMemory) {
  const Expr h = input(g, "h", DType::BF16, {150, 256});
  const Expr s = input(g, "s", DType::F32, {150, 1});
  tensors.emplace("s", HostTensor::from(DType::F32, {150, 1}, std::vector<double>(150, 0.25)));
  const Rounding computed = {DType::F32, DType::E4M3, 256, 4, kLostOfE4m3};
  expect(launch("gemm", {{"y", linear(cast(silu(h) / s, DType::E4M3), weight("w", DType::E4M3, {96, 256})) * s}}),
         computed);
  const Expr heads = reshape(permute(input(g, "o", DType::E4M3, {2, 4, 50, 48}), {0, 2, 1, 3}), {2, 50, 192});
  expect(launch("gemm", {{"y", linear(heads, weight("v", DType::E4M3, {80, 192}))}}), tolerance(DType::F32, 192));
  const Expr a = input(g, "a", DType::E4M3, {60, 128}), b = input(g, "b", DType::E4M3, {60, 48}),
             c = input(g, "c", DType::E4M3, {60, 72});
  expect(launch("gemm", {{"y", linear(concat({a, b}, -1), weight("u", DType::E4M3, {70, 176}))}}),
         tolerance(DType::F32, 176));
  expect(launch("gemm", {{"y", linear(concat({c, b}, -1), weight("t", DType::E4M3, {72, 120}))}}),
         tolerance(DType::F32, 120));
}

TEST_F(GemmE4m3, ProductsOfActivations) {
  const Expr q = input(g, "q", DType::E4M3, {2, 3, 40, 32}), k = input(g, "k", DType::E4M3, {2, 3, 56, 32}),
             odd = input(g, "odd", DType::E4M3, {2, 3, 50, 32});
  expect(launch("gemm", {{"s", linear(q, k) * 0.2}}), tolerance(DType::F32, 32, 24));
  expect(launch("gemm", {{"s", linear(q, odd)}}), tolerance(DType::F32, 32, 24));
}

TEST_F(GemmE4m3, BesideOtherTypes) {
  for (const DType t : {DType::F16, DType::BF16, DType::F32}) {
    const std::string id = numbered("y", size_of(t)) + std::string(name_of(t));
    const Expr x = input(g, id + ".x", t, {70, 96}), w = weight(id + ".w", DType::E4M3, {40, 96});
    expect(launch("gemm", {{id, linear(x, w)}}), {DType::F32, DType::F32, 96, 4});
  }
}

// Both operands quantised from a model's values, the weight once; y = (q_x q_w^T) s_x s_w against the same in fp64.
TEST_F(GemmE4m3, QuantizedInTheGraph) {
  const Expr x = input(g, "x", DType::BF16, {70, 200}), s = input(g, "s", DType::F32, {70, 1});
  tensors.emplace("x", random_tensor(DType::BF16, {70, 200}, 3));
  const HostTensor scale = run(launch("rows", {{"s", quantize_rows(x).scale}})).at("s");
  tensors.emplace("s", scale);
  const QuantizedRows w = quantize_rows(weight("w", DType::BF16, {90, 200}));
  const Expr q = cast(x / s, DType::E4M3);
  expect(launch("gemm", {{"y", linear(q, w.q) * s}}), {DType::F32, DType::E4M3, 200, 4 * 448.0, kLostOfE4m3});
}

// Integer weights, stored as such and made from other types, with rows of every type.
TEST_F(Gemm, WeightsInI8) {
  const auto whole = [&](const std::string& name, const Shape& shape) {
    tensors.emplace(name, random_tensor(DType::I8, shape, 5, 24));
    return param(g, name, DType::I8, shape);
  };
  for (const DType t : {DType::F16, DType::BF16, DType::F32})
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {1, 200, 260}, {17, 40, 96}, {130, 72, 65}}) {
      const std::string id = numbered(numbered(std::string(name_of(t)), m), n);
      const Expr x = input(g, id + ".x", t, {m, k}), s = param(g, id + ".s", DType::F32, {n});
      expect(launch("gemm", {{id, linear(x, whole(id + ".w", {n, k})) * s}}), {DType::F32, DType::F32, k, 4 * 127.0});
    }
  const Expr x = input(g, "x", DType::BF16, {3, 576}), r = input(g, "r", DType::BF16, {3, 160});
  const QuantizedRows w = quantize_rows(weight("w", DType::BF16, {2 * 160, 576}), DType::I8);
  const Expr y = linear(x, w.q) * param(g, "s", DType::F32, {2 * 160});
  const Expr gated = cast(silu(slice(y, -1, 0, 160)) * slice(y, -1, 160, 320) + r, DType::BF16);
  // A weight halfway between two numbers becomes either, which changes a sum by a hundredth of its magnitude.
  expect(launch("gemm", {{"y", gated}}), {DType::BF16, DType::BF16, 576, 16 * 127.0 * 127, 0x1p-6});
}

// Not a kernel's choice: it uses the launch's arithmetic, and one that it does not support is refused.
TEST_F(GemmE4m3, ArithmeticIsObeyedOrRefused) {
  const Expr x = input(g, "x", DType::BF16, {20, 64}), w = weight("w", DType::BF16, {24, 64});
  const Launch plain = launch("gemm", {{"y", linear(x, w)}});
  EXPECT_EQ(plain.form->anchor->attrs.dtype, DType::BF16);
  const Launch wide = launch("gemm", {{"y", multiplied_in(linear(x, w), DType::F32)}});
  EXPECT_EQ(wide.form->anchor->attrs.dtype, DType::F32);
  expect(wide, {DType::F32, DType::BF16, 64, 4});
  const Expr a = input(g, "a", DType::U8, {20, 64}), b = param(g, "b", DType::U8, {24, 64});
  const Launch whole = launch("gemm", {{"y", multiplied_in(linear(a, b), DType::U8)}});
  const Expr q = input(g, "q", DType::E4M3, {1, 2, 8, 16});
  const Launch heads = launch("attention", {{"y", multiplied_in(attention(q, q, q, 0.25), DType::E4M3)}});
  Launch unsettled = plain;
  unsettled.outputs = {{"y", linear(x, w)}};
  EXPECT_TRUE(!form_launch(unsettled));
  for (const Runner& runner : runners())
    for (const auto& [l, why] :
         {std::pair<const Launch&, const char*>{whole, "linear multiplies in u8, expected one of f32, bf16, f16, e4m3"},
          {heads, "attention multiplies in e4m3, expected one of f32, bf16, f16"},
          {unsettled, "linear has no arithmetic type"}}) {
      try {
        runner.run(l, tensors);
        ADD_FAILURE() << runner.name << ": no error";
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::Usage);
        EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
      }
    }
}

TEST_F(GemmE4m3, FullSize) {
  const Expr x = input(g, "x", DType::E4M3, {192, 10240}), w = weight("w", DType::E4M3, {384, 10240});
  expect(launch("gemm", {{"y", linear(x, w) * scales("s", {192, 1}, false)}}), tolerance(DType::F32, 10240));
}

TEST_F(Gemm, WeightFileOfAnotherType) {
  const Expr x = input(g, "x", DType::BF16, {50, 72}), w = weight("w", DType::BF16, {40, 72}),
             b = param(g, "b", DType::BF16, {40});
  // The values rounded to the declared type, in f32: the file's type does not affect the semantics.
  const std::vector<double> values = tensors.at("w").values();
  tensors.at("w") = HostTensor::from(DType::F32, {40, 72}, values);
  tensors.emplace("b", random_tensor(DType::BF16, {40}, 3));
  const std::vector<double> bias = tensors.at("b").values();
  tensors.at("b") = HostTensor::from(DType::F32, {40}, bias);
  const Launch l = launch("gemm", {{"y", linear(x, w) + b}});
  for (const Runner& runner : runners()) {
    const HostTensor got = runner.run(l, tensors).at("y");
    tensors.at("w") = HostTensor::from(DType::BF16, {40, 72}, values);
    tensors.at("b") = HostTensor::from(DType::BF16, {40}, bias);
    EXPECT_TRUE(got.data == runner.run(l, tensors).at("y").data);
    tensors.at("w") = HostTensor::from(DType::F32, {40, 72}, values);
    tensors.at("b") = HostTensor::from(DType::F32, {40}, bias);
  }
  expect(l, {DType::F32, DType::BF16, 72, 4});
}

TEST_F(Gemm, ProductsOfActivations) {
  // One matrix per head, b transposed or not, computed at run time.
  const Expr q = input(g, "q", DType::BF16, {2, 3, 40, 24}), k = input(g, "k", DType::BF16, {2, 3, 50, 24});
  expect(launch("gemm", {{"s", linear(q, k) * 0.2}}), {DType::F32, DType::BF16, 24, 24});
  const Expr p = input(g, "p", DType::F32, {2, 3, 40, 50}), v = input(g, "v", DType::F32, {2, 3, 50, 24});
  expect(launch("gemm", {{"o", matmul(p, v)}}), {DType::F32, DType::F32, 50, 50});
  expect(launch("gemm", {{"o", linear(p, exp(transpose(v) * 0.1))}}), {DType::F32, DType::F32, 50, 50});
  const Expr heads = permute(reshape(input(g, "h", DType::BF16, {2, 50, 72}), {2, 50, 3, 24}), {0, 2, 1, 3});
  expect(launch("gemm", {{"s", linear(q, heads)}}), {DType::F32, DType::BF16, 24, 24});
  expect(launch("gemm", {{"s", linear(heads, q)}}), {DType::F32, DType::BF16, 24, 24});
}

// Operands that do not fit a CPU's cache and change between runs: rows, columns, both with a border within a group of
// panels, two lanes that end within a panel, bytes, and a single row, whose panels are shared out one by one.
TEST_F(Gemm, LargeOperandsThatChange) {
  constexpr int64_t kM = 70, kK = 1064;
  const int64_t n = cpu::round_up(cpu::l2_bytes() / (2 * kK) + 1, 64), part = n / 2 + 32;
  const Expr x = input(g, "x", DType::BF16, {kM, kK}), rows = input(g, "rows", DType::BF16, {n + 40, kK});
  const Expr columns = permute(input(g, "columns", DType::BF16, {kK, n + 6}), {1, 0});
  const Rounding rounding{DType::F32, DType::BF16, kK, 4};
  const auto expect_on_the_fly = [&](const Expr& result, const Rounding& r) {
    const Launch l = launch("gemm", {{"result", result}});
    const auto engine = std::make_shared<cpu::Engine>(1, *cpu::tile_ops(cpu::Isa::Avx2));
    EXPECT_THAT(cpu::make_kernel(engine, l)->describe(), testing::HasSubstr("b: packed on the fly"));
    expect(l, r);
  };
  expect_on_the_fly(linear(x, rows), rounding);
  expect_on_the_fly(linear(x, columns), rounding);
  const Expr both = concat({slice(rows, 0, 0, part), slice(columns, 0, 3, n - part + 90)}, 0);
  for (const int64_t m : {kM, int64_t{1}}) expect_on_the_fly(linear(slice(x, 0, 0, m), both), rounding);
  const Expr y = linear(x, rows);
  expect_on_the_fly(silu(slice(y, 1, 0, n / 2 + 20)) * slice(y, 1, n / 2 + 20, n + 40), rounding);
  const Expr q = input(g, "q", DType::E4M3, {kM, kK}), bytes = input(g, "bytes", DType::E4M3, {kK, n + 16});
  expect_on_the_fly(linear(q, permute(bytes, {1, 0})), {DType::F32, DType::E4M3, kK, 4});
}

TEST_F(Gemm, StatisticsOfWhatIsStored) {
  const Expr x = input(g, "x", DType::BF16, {2, 130, 64}), w = weight("w", DType::BF16, {48, 64});
  const Expr y = cast(linear(x, w), DType::BF16);
  // Sums over 130 rounded values: each may be a step off.
  const Rounding t = {DType::BF16, DType::BF16, 130, 130};
  expect(launch("gemm", {{"y", y}, {"sum", sum(y, ReduceOver::Inner)}, {"sq", sumsq(y, ReduceOver::Inner)}}), t);
  expect(
      launch("gemm", {{"h", permute(reshape(y, {2, 130, 3, 16}), {0, 2, 1, 3})}, {"sum", sum(y, ReduceOver::Inner)}}),
      t);
}

TEST_F(Gemm, NaNInOneRow) {
  tensors.emplace("x", random_tensor(DType::BF16, {40, 64}, 9));
  store_element(DType::BF16, tensors.at("x").data.data(), 5 * 64 + 7, NAN);
  const Expr x = input(g, "x", DType::BF16, {40, 64});
  expect(
      launch("gemm",
             {{"y", cast(silu(linear(cast(silu(x), DType::BF16), weight("w", DType::BF16, {32, 64}))), DType::BF16)}}),
      {DType::BF16, DType::BF16, 64, 4}, NaN::MayBeExpected);
}

TEST_F(Gemm, FullSize) {
  const Expr x = input(g, "x", DType::BF16, {2, 4096, 320}), w = weight("w", DType::BF16, {320, 320});
  const Expr b = param(g, "b", DType::BF16, {320}), r = input(g, "r", DType::BF16, {2, 4096, 320});
  expect(launch("gemm", {{"y", cast(linear(x, w) + b + r, DType::BF16)}}), {DType::BF16, DType::BF16, 320, 4});
}

// On a large GPU, parts of K.
TEST_F(Gemm, FewRowsOfALongK) {
  const Expr x = input(g, "x", DType::BF16, {96, 2048}), w = weight("w", DType::BF16, {184, 2048});
  const Expr b = param(g, "b", DType::BF16, {184}), r = input(g, "r", DType::BF16, {96, 184});
  expect(launch("gemm", {{"y", cast(linear(x, w) + b + r, DType::BF16)}}), {DType::BF16, DType::BF16, 2048, 4});
}

TEST_F(Gemm, WrongWeightIsAModelError) {
  const Expr x = input(g, "x", DType::BF16, {4, 8}), w = weight("w", DType::BF16, {6, 8});
  const Launch l = launch("gemm", {{"y", linear(x, w)}});
  tensors.at("w") = random_tensor(DType::BF16, {6, 7}, 1);
  try {
    run(l);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Model);
    EXPECT_NE(std::string(e.what()).find("[6,7]"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tenon::launches
