// Values of the forward pass computed a second time, to a budget of bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/oracle.h"
#include "tenon/expr/vjp.h"
#include "tenon/train/rematerialise.h"

namespace tenon {
namespace {

// A chain of layers, each of whose activations its gradient reads.
struct Chain {
  Graph g;
  std::vector<Result> results;
  Expr forward;
  explicit Chain(int layers) {
    Expr x = input(g, "x", DType::F32, {64, 32});
    std::vector<Expr> weights;
    for (int i = 0; i < layers; ++i) {
      weights.push_back(param(g, "w" + std::to_string(i), DType::F32, {32, 32}));
      x = silu(linear(x, weights.back()));
    }
    forward = x;
    const std::vector<Expr> grads = gradients(x, input(g, "seed", DType::F32, x.shape()), weights);
    for (size_t i = 0; i < grads.size(); ++i) results.push_back({"d" + std::to_string(i), grads[i]});
  }
};

TEST(Rematerialise, KeepsToTheBudget) {
  Chain chain(16);
  const int64_t whole = make_plan(chain.results).arena_bytes, activation = 64 * 32 * 4;
  EXPECT_GE(whole, 16 * activation);
  const auto same = rematerialise(chain.results, std::array{chain.forward}, whole);
  for (size_t i = 0; i < same.size(); ++i) EXPECT_EQ(same[i].value, chain.results[i].value);
  for (const int64_t budget : {whole * 9 / 10, whole * 3 / 4}) {
    const auto less = rematerialise(chain.results, std::array{chain.forward}, budget);
    EXPECT_LE(make_plan(less).arena_bytes, budget);
  }
  try {
    rematerialise(chain.results, std::array{chain.forward}, 1000);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Memory);
    EXPECT_THAT(e.what(), testing::HasSubstr("more than 1000"));
  }
}

TEST(Rematerialise, MeansTheSame) {
  Chain chain(8);
  const auto less =
      rematerialise(chain.results, std::array{chain.forward}, make_plan(chain.results).arena_bytes * 4 / 5);
  Oracle oracle([](const Expr& leaf) {
    std::vector<double> out;
    for (int64_t i = 0; i < leaf.shape().numel(); ++i) out.push_back(std::sin(static_cast<double>(i * i + 1)) / 4);
    return out;
  });
  bool changed = false;
  for (size_t i = 0; i < less.size(); ++i) {
    changed = changed || less[i].value != chain.results[i].value;
    EXPECT_EQ(oracle.eval(less[i].value), oracle.eval(chain.results[i].value)) << less[i].name;
  }
  EXPECT_TRUE(changed);
}

// Blocks of attention that all read one table, with a stream that each adds to: what they compute again stays within
// the block whose gradient needs it.
TEST(Rematerialise, ADeepNetworkWithTables) {
  constexpr int64_t kRows = 256, kWidth = 32;
  const auto bytes = [](int blocks, double share) {
    Graph g;
    const Expr table = cos(input(g, "positions", DType::F32, {kRows, kWidth}) * 2.0);
    Expr x = input(g, "x", DType::F32, {kRows, kWidth});
    std::vector<Expr> weights;
    const auto layer = [&](const Expr& in, int64_t n) {
      weights.push_back(param(g, "w" + std::to_string(weights.size()), DType::F32, {n, in.shape()[-1]}));
      return linear(in, weights.back());
    };
    for (int b = 0; b < blocks; ++b) {
      const auto heads = [](const Expr& y) { return reshape(y, {1, 1, kRows, kWidth}); };
      const Expr q = layer(x, kWidth) * table, k = layer(x, kWidth) * table;
      x = x + layer(reshape(attention(heads(q), heads(k), heads(layer(x, kWidth)), 0.2), {kRows, kWidth}), kWidth);
      x = x + layer(silu(layer(x, 4 * kWidth)), kWidth);
    }
    const std::vector<Expr> grads = gradients(x, input(g, "seed", DType::F32, x.shape()), weights);
    std::vector<Result> results;
    for (size_t i = 0; i < grads.size(); ++i) results.push_back({"d" + std::to_string(i), grads[i]});
    const int64_t whole = make_plan(results).arena_bytes;
    const auto budget = static_cast<int64_t>(static_cast<double>(whole) * share);
    EXPECT_LE(make_plan(rematerialise(results, std::array{x}, budget)).arena_bytes, budget) << blocks;
    return whole;
  };
  EXPECT_GT(bytes(24, 0.25), 3 * bytes(4, 0.7) / 2);
}

}  // namespace
}  // namespace tenon
