// Layers by themselves, and properties of the networks' graphs that the planner relies on: rates, storage points,
// random weights.
#include <set>

#include "tenon/expr/ops.h"
#include "tenon/models/clip_text.h"
#include "tenon/models/hash_weights.h"
#include "tenon/models/unet.h"
#include "tenon/models/vae.h"
#include "tenon/nn/attention.h"
#include "tenon/nn/diffusion.h"
#include "tenon/nn/linear.h"
#include "tenon/nn/norm.h"
#include "tests/models/model_fixtures.h"

namespace tenon {
namespace {
using namespace models_test;

TEST(Layers, GroupNormOfAConcatenation) {
  Graph g;
  const Expr a = input(g, "a", DType::F32, {2, 3, 5, 4}), b = input(g, "b", DType::F32, {2, 3, 5, 8});
  const Expr gamma = input(g, "gamma", DType::F32, {12}), beta = input(g, "beta", DType::F32, {12});
  const Expr x = concat({a, b}, -1);
  Oracle oracle = hash_oracle({}, {{"a", hash_input(1, 120)},
                                   {"b", hash_input(2, 240)},
                                   {"gamma", hash_input(3, 12)},
                                   {"beta", hash_input(4, 12)}});
  const auto found = oracle.eval(nn::group_norm(x, {3, 1e-3}, gamma, beta));
  const auto values = oracle.eval(x), scale = oracle.eval(gamma), shift = oracle.eval(beta);
  // Statistics of the parts, not of the whole, so that each producer can supply its own.
  EXPECT_TRUE(nn::channel_means(x).is<nodes::Concat>());
  EXPECT_TRUE(nn::channel_variances(x).is<nodes::Concat>());
  for (size_t n = 0; n < 2; ++n)
    for (size_t group = 0; group < 3; ++group) {
      double total = 0, squares = 0;
      const auto at = [&](size_t i) { return n * 180 + i / 4 * 12 + group * 4 + i % 4; };
      for (size_t i = 0; i < 60; ++i) total += values[at(i)];
      for (size_t i = 0; i < 60; ++i) squares += std::pow(values[at(i)] - total / 60, 2);
      for (size_t i = 0; i < 60; ++i) {
        const size_t c = group * 4 + i % 4;
        const double expected = (values[at(i)] - total / 60) / std::sqrt(squares / 60 + 1e-3) * scale[c] + shift[c];
        EXPECT_LE(std::abs(found[at(i)] - expected), 1e-9);
      }
    }
  EXPECT_THROW(nn::group_norm(x, {5, 1e-3}, gamma, beta), Error);
}

TEST(Layers, ShapesThatDoNotFitAreNamed) {
  Graph g;
  const auto refused = [](const std::string& text, const auto& f) {
    try {
      f();
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()), text);
    }
  };
  const auto x = [&](const Shape& shape) { return input(g, "x" + shape.str(), DType::F32, shape); };
  const std::string form = " do not fit: expected q [B,Sq,C], k and v [B,Sk,C]";
  const auto attention = [&](const Shape& q, const Shape& k, const Shape& v) {
    nn::attention(x(q), x(k), x(v), 2, DType::F32);
  };
  attention({1, 5, 8}, {1, 3, 8}, {1, 3, 8});
  refused("[attention] q [5,8], k [5,8], v [5,8]" + form, [&] { attention({5, 8}, {5, 8}, {5, 8}); });
  refused("[attention] q [], k [1,3,8], v [1,3,8]" + form, [&] { attention({}, {1, 3, 8}, {1, 3, 8}); });
  refused("[attention] q [1,5,8], k [1,3,4], v [1,3,4]" + form, [&] { attention({1, 5, 8}, {1, 3, 4}, {1, 3, 4}); });
  refused("[attention] q [1,5,8], k [1,3,8], v [1,4,8]" + form, [&] { attention({1, 5, 8}, {1, 3, 8}, {1, 4, 8}); });
  refused("[attention] q [2,5,8], k [1,3,8], v [1,3,8]" + form, [&] { attention({2, 5, 8}, {1, 3, 8}, {1, 3, 8}); });
  refused("[tokens_of_image] expected an image [N,H,W,C], got [4,4,3]", [&] { nn::tokens_of_image(x({4, 4, 3})); });
  refused("[group_norm] expected x [N,..,C], got [8]", [&] { nn::group_norm(x({8}), {2}, x({8}), x({8})); });
  refused("[group_norm] expected x [N,..,C], got []", [&] { nn::group_norm(x({}), {2}, x({8}), x({8})); });
}

TEST(Layers, GroupNormOfAConstantIsItsShift) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {1, 2, 2, 4});
  const Expr one = input(g, "one", DType::F32, {4});
  const auto y = hash_oracle({}, {{"x", std::vector<double>(16, 0.1)}, {"one", std::vector<double>(4, 1)}})
                     .eval(nn::group_norm(x, {2, 1e-6}, one, one));
  for (double v : y) EXPECT_LE(std::abs(v - 1), 1e-6);
}

TEST(Layers, LayerNorm) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {2, 6}), gamma = input(g, "gamma", DType::F32, {6}),
             beta = input(g, "beta", DType::F32, {6});
  Oracle oracle = hash_oracle({}, {{"x", hash_input(1, 12)}, {"gamma", hash_input(2, 6)}, {"beta", hash_input(3, 6)}});
  const auto y = oracle.eval(nn::layer_norm(x, 1e-5, gamma, beta)), v = oracle.eval(x), s = oracle.eval(gamma),
             t = oracle.eval(beta);
  for (size_t r = 0; r < 2; ++r) {
    double m = 0, var = 0;
    for (size_t c = 0; c < 6; ++c) m += v[r * 6 + c] / 6;
    for (size_t c = 0; c < 6; ++c) var += std::pow(v[r * 6 + c] - m, 2) / 6;
    for (size_t c = 0; c < 6; ++c)
      EXPECT_LE(std::abs(y[r * 6 + c] - ((v[r * 6 + c] - m) / std::sqrt(var + 1e-5) * s[c] + t[c])), 1e-9);
  }
}

TEST(Layers, OneByOneConvolutionIsALinearLayer) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {1, 4, 4, 8}), w = param(g, "w", DType::BF16, {16, 8, 1, 1});
  const Expr y = nn::conv2d(x, w, {});
  EXPECT_TRUE(y.is<nodes::Linear>());
  EXPECT_EQ(y.shape(), (Shape{1, 4, 4, 16}));
  EXPECT_EQ(y->in[0].dtype(), DType::BF16);
  EXPECT_EQ(y->in[1]->in[0], w);
  EXPECT_TRUE(nn::conv2d(x, w, {}, 2).is<nodes::Conv2d>());
  EXPECT_TRUE(nn::conv2d(x, w, {}, 1, nn::Pads::all(1)).is<nodes::Conv2d>());
}

TEST(Layers, SinusoidHalvesAndFractions) {
  Graph g;
  const Expr t = input(g, "t", DType::F32, {2}, Rate::Schedule);
  Oracle oracle = hash_oracle({}, {{"t", {3, 946.5}}});
  const auto y = oracle.eval(nn::sinusoid(t, 8)), swapped = oracle.eval(nn::sinusoid(t, 8, 1, true));
  for (size_t r = 0; r < 2; ++r)
    for (size_t k = 0; k < 4; ++k) {
      const double time = r ? 946.5 : 3, half = static_cast<double>(k);
      const double angle = time * std::exp(-std::log(10000.0) * half / 4),
                   shifted = time * std::exp(-std::log(10000.0) * half / 3);
      EXPECT_LE(std::abs(y[r * 8 + k] - std::cos(angle)), 1e-4);
      EXPECT_LE(std::abs(y[r * 8 + 4 + k] - std::sin(angle)), 1e-4);
      EXPECT_LE(std::abs(swapped[r * 8 + k] - std::sin(shifted)), 1e-4);
    }
}

// ---- graphs ----

std::vector<Expr> nodes_of(const Expr& root) { return topological(std::array{root}); }

TEST(Graphs, TimeAndTextLayersDoNotChangeBetweenSteps) {
  Graph g;
  const Expr out = unet(g, {}, {.guided = true, .timesteps = 20}, nn::kBf16);
  int schedule = 0, prompt = 0, step = 0;
  for (const Expr& e : nodes_of(out)) {
    if (e->family() != Family::Anchor) continue;
    schedule += e->rate == Rate::Schedule;
    prompt += e->rate == Rate::Prompt;
    step += e->rate == Rate::Step;
  }
  EXPECT_EQ(schedule, 2 + 22);  // the time embedding and one projection per residual block
  EXPECT_EQ(prompt, 2 * 16);    // keys and values of the text in every transformer block
  // Per residual block two convolutions, and 14 shortcuts; per transformer block two 1x1 convolutions, the
  // feed-forward, self-attention with four projections, cross-attention with two; conv_in, conv_out; three steps down
  // and three up.
  EXPECT_EQ(step, 22 * 2 + 14 + 16 * (2 + 2 + 5 + 3) + 2 + 6);
}

TEST(Graphs, OperandsOfMatrixUnitsAreStoredInTheWeightsType) {
  Graph g;
  for (const Expr& root : {unet(g, {}, {}, nn::kBf16), vae_decode(g, {}, 1, 64, 64, nn::kBf16),
                           clip_text(g, {}, 2, 77, nn::kBf16), vae_encode(g, {}, 1, 512, 512, nn::kBf16)}) {
    EXPECT_EQ(root.dtype(), DType::F32);
    for (const Expr& e : nodes_of(root)) {
      if (e->family() != Family::Anchor) continue;
      for (const Expr& operand : e->in) EXPECT_EQ(operand.dtype(), DType::BF16) << e->name();
    }
  }
}

TEST(Graphs, WithoutCastsInF32) {
  Graph g;
  for (const Expr& e : nodes_of(unet(g, {}, {}, nn::kF32))) EXPECT_NE(e->name(), "cast");
}

TEST(Graphs, SkipConnectionsAreViewsOfTwoStoredImages) {
  Graph g;
  int skips = 0;
  for (const Expr& e : nodes_of(unet(g, {}, {}, nn::kBf16)))
    skips += e.is<nodes::Concat>() && e.shape().rank() == 4 && e.dtype() == DType::BF16;
  EXPECT_EQ(skips, 12);
}

TEST(Graphs, PrintAndParseBack) {
  Graph g, h;
  const Expr out = unet(g, {}, {.guided = true, .height = 33, .width = 47}, nn::kBf16);
  const std::string text = print(out);
  EXPECT_EQ(print(parse(h, text)[0]), text);
}

// ---- random weights ----

TEST(RandomWeights, HashIsTheSpecifiedOne) {
  EXPECT_LE(std::abs(hash_uniform(1, 0) - 0.15846673), 1e-8);
  EXPECT_LE(std::abs(hash_uniform(1, 1) - 0.49619982), 1e-8);
  EXPECT_LE(std::abs(hash_uniform(1, 2) + 0.20931299), 1e-8);
  EXPECT_LE(std::abs(hash_uniform(1, 3) - 0.45122116), 1e-8);
  EXPECT_LE(std::abs(hash_weight("a.norm1.weight", 0, 0) - (1 + 0.4 * 0.15846673)), 1e-8);
  EXPECT_LE(std::abs(hash_weight("a.norm1.bias", 0, 0) - 0.3 * 0.15846673), 1e-8);
}

std::vector<float> random_f32(const std::string& name, const Shape& shape, uint64_t seed = 0) {
  std::vector<float> out(static_cast<size_t>(shape.numel()));
  random_weight(name, shape, DType::F32, 0, shape.numel(), out.data(), seed);
  return out;
}

TEST(RandomWeights, LawOfAMatrixAndOfSmallTensors) {
  const auto w = random_f32("a.to_q.weight", {300, 400});
  double sum = 0, squares = 0;
  for (float v : w) {
    EXPECT_LE(std::abs(v), std::sqrt(3.0 / 400) * 1.0001);
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const double n = static_cast<double>(w.size());
  EXPECT_LE(std::abs(sum / n), 0.05 * 4 / std::sqrt(n));
  EXPECT_LE(std::abs(squares / n * 400 - 1), 0.02);
  for (float v : random_f32("a.norm1.weight", {500})) EXPECT_LE(std::abs(v - 1), 0.2001);
  for (float v : random_f32("a.norm1.bias", {500})) EXPECT_LE(std::abs(v), 0.0501);
}

TEST(RandomWeights, SameInAnyOrderAndType) {
  const Shape shape{7, 11};
  const auto whole = random_f32("w", shape);
  for (int64_t begin = 30; begin < 38; ++begin)
    for (int64_t end = begin; end < 50; ++end) {
      std::vector<float> part(static_cast<size_t>(end - begin) + 1, -7.0f);
      random_weight("w", shape, DType::F32, begin, end, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end() - 1, whole.begin() + begin)) << begin << ".." << end;
      EXPECT_EQ(part.back(), -7.0f);
    }
  for (DType t : {DType::BF16, DType::F16}) {
    std::vector<uint16_t> half(77);
    random_weight("w", shape, t, 0, 77, half.data());
    for (int64_t i = 0; i < 77; ++i)
      EXPECT_EQ(load_element(t, half.data(), i), round_to(t, whole[static_cast<size_t>(i)]));
  }
  EXPECT_NE(random_f32("w", shape, 1), whole);
  EXPECT_NE(random_f32("v", shape), whole);
  std::vector<float> some(8);
  EXPECT_THROW(random_weight("w", shape, DType::F32, 70, 78, some.data()), Error);
  EXPECT_THROW(random_weight("w", shape, DType::I8, 0, 8, some.data()), Error);
}

// Random weights keep activations in an ordinary range through the whole network.
TEST(RandomWeights, ActivationsStayFinite) {
  UNetConfig c;
  c.levels = {{32, 2}, {64, 2}, {96, 2}, {96, 2, false, false}};
  c.context_dim = 24;
  c.time_dim = 128;
  Graph g;
  const Expr out = unet(g, c, {.height = 6, .width = 5}, nn::kF32);
  Oracle oracle([](const Expr& leaf) -> std::vector<double> {
    if (leaf->attrs.text == "step") return {0};
    if (leaf->attrs.text == "timesteps") return {500};
    if (!leaf.is<nodes::Param>()) return hash_input(9, leaf.shape().numel());
    const auto w = random_f32(leaf->attrs.text, leaf.shape());
    return {w.begin(), w.end()};
  });
  const double size = mean_magnitude(oracle.eval(out));
  EXPECT_LE(size, 10);
  EXPECT_LE(0.01, size);
}

}  // namespace
}  // namespace tenon
