// Semantics of states: updates as values, attention over the first keys of a cache, its log-sum-exp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/oracle/oracle.h"

namespace tenon {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;

HostTensor numbers_from(DType t, const Shape& shape, double first, double step = 1) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + step * static_cast<double>(i);
  return HostTensor::from(t, shape, values);
}

template <class F>
std::string usage_of(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(State, AnUpdateIsTheStateWithRowsReplaced) {
  Graph g;
  const Expr k = state(g, "k", DType::F32, {4, 2}), at = input(g, "at", DType::I32, {2}),
             rows = input(g, "rows", DType::F32, {2, 2});
  Oracle oracle({{"k", numbers_from(DType::F32, {4, 2}, 0)},
                 {"at", HostTensor::from(DType::I32, {2}, std::vector<double>{3, 1})},
                 {"rows", numbers_from(DType::F32, {2, 2}, 10)}});
  const Expr once = update_rows(k, at, rows), twice = update_rows(once, iota(g, 2), rows);
  EXPECT_THAT(oracle.eval(once), ElementsAre(0, 1, 12, 13, 4, 5, 10, 11));
  EXPECT_THAT(oracle.eval(gather(twice, at) + 1.0), ElementsAre(11, 12, 13, 14));
  EXPECT_THAT(oracle.eval(k), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(state_of(twice), k);
  EXPECT_EQ(version_of(twice), 2);
  EXPECT_EQ(version_of(state_leaf(g, twice)), 2);
  EXPECT_EQ(state_leaf(g, k), k);
}

TEST(State, TextIsReadBack) {
  Graph g, h;
  const Expr k = state(g, "k", DType::BF16, {4, 2});
  const Expr e = update_rows(state_leaf(g, update_rows(k, iota(g, 4), k)), input(g, "i", DType::I64, {3}),
                             input(g, "r", DType::BF16, {3, 2}));
  const std::string text = print(e);
  EXPECT_EQ(print(parse(h, text)), text);
  EXPECT_THAT(text, HasSubstr("state<\"k\",bf16,[4,2],3,1>()"));
}

TEST(State, WhatDoesNotFitIsNamed) {
  Graph g;
  const Expr k = state(g, "k", DType::BF16, {4, 2}), x = input(g, "x", DType::BF16, {4, 2}), i = iota(g, 3);
  const auto rows = [&](DType t, const Shape& s) { return input(g, "r", t, s); };
  EXPECT_THAT(usage_of([&] {
                update_rows(x, i, rows(DType::BF16, {3, 2}));
              }),
              HasSubstr("a state or an update of one"));
  EXPECT_THAT(usage_of([&] {
                update_rows(k, i, rows(DType::F32, {3, 2}));
              }),
              HasSubstr("rows of 'k' are bf16[3,2], got f32[3,2]"));
  EXPECT_THAT(usage_of([&] { update_rows(k, i, rows(DType::BF16, {2, 2})); }), HasSubstr("got bf16[2,2]"));
  EXPECT_THAT(usage_of([&] { update_rows(k, x, rows(DType::BF16, {3, 2})); }), HasSubstr("i32 or i64"));
  Oracle oracle({{"k", HostTensor::zeros(DType::BF16, {4, 2})},
                 {"at", HostTensor::from(DType::I32, {1}, std::vector<double>{4})},
                 {"r", HostTensor::zeros(DType::BF16, {1, 2})}});
  EXPECT_THAT(usage_of([&] {
                oracle.eval(update_rows(k, input(g, "at", DType::I32, {1}), rows(DType::BF16, {1, 2})));
              }),
              HasSubstr("index 4 is outside 0..3"));
}

// Attention over the first keys equals attention over a cache that ends there.
TEST(State, AttentionSeesTheFirstKeys) {
  for (const bool causal : {false, true}) {
    Graph g;
    const auto heads = [&](const char* name, int64_t h, int64_t rows) {
      return input(g, name, DType::F32, {2, h, rows, 8});
    };
    const Expr q = heads("q", 4, 3), k = heads("k", 2, 9), v = heads("v", 2, 9), n = input(g, "n", DType::I32, {2});
    const std::map<std::string, HostTensor> leaves = {
        {"q", numbers_from(DType::F32, {2, 4, 3, 8}, -1, 0.01)},
        {"k", numbers_from(DType::F32, {2, 2, 9, 8}, 2, -0.013)},
        {"v", numbers_from(DType::F32, {2, 2, 9, 8}, 0, 0.1)},
        {"n", HostTensor::from(DType::I32, {2}, std::vector<double>{5, 2})}};
    Oracle oracle(leaves);
    const Expr y = attention(q, k, v, 0.3, causal, n);
    const std::vector<double> got = oracle.eval(y), sums = oracle.eval(attention_lse(y));
    for (int64_t b = 0; b < 2; ++b) {
      const int64_t there = b == 0 ? 5 : 2;
      const auto of = [&](const Expr& x, int64_t rows) { return slice(slice(x, 0, b, b + 1), 2, 0, rows); };
      const int64_t blind = causal ? std::max<int64_t>(3 - there, 0) : 0;
      const Expr some = slice(slice(q, 0, b, b + 1), 2, blind, 3);
      const Expr alone = attention(some, of(k, there), of(v, there), 0.3, causal);
      const std::vector<double> want = oracle.eval(alone), want_sums = oracle.eval(attention_lse(alone));
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t i = 0; i < 3; ++i) {
          const size_t row = static_cast<size_t>((b * 4 + h) * 3 + i);
          if (i < blind) {
            EXPECT_TRUE(std::isnan(got[row * 8])) << i;
            EXPECT_EQ(sums[row], -INFINITY);
            continue;
          }
          const size_t from = static_cast<size_t>(h * (3 - blind) + i - blind);
          for (size_t d = 0; d < 8; ++d) EXPECT_DOUBLE_EQ(got[row * 8 + d], want[from * 8 + d]);
          EXPECT_DOUBLE_EQ(sums[row], want_sums[from]);
        }
    }
  }
}

TEST(State, KeysAreCheckedAndNotMultiplied) {
  Graph g;
  const Expr q = input(g, "q", DType::BF16, {2, 1, 1, 8}), k = input(g, "k", DType::BF16, {2, 1, 9, 8});
  EXPECT_THAT(usage_of([&] { attention(q, k, k, 1, false, input(g, "n", DType::I32, {3})); }),
              HasSubstr("keys must be i32, one number or one for each batch entry, got i32[3]"));
  EXPECT_THAT(usage_of([&] { attention(q, k, k, 1, false, input(g, "f", DType::F32, {})); }), HasSubstr("got f32[]"));
  Oracle oracle({{"q", HostTensor::zeros(DType::BF16, {2, 1, 1, 8})},
                 {"k", HostTensor::zeros(DType::BF16, {2, 1, 9, 8})},
                 {"n", HostTensor::from(DType::I32, {}, std::vector<double>{10})}});
  EXPECT_THAT(usage_of([&] { oracle.eval(attention(q, k, k, 1, false, input(g, "n", DType::I32, {}))); }),
              HasSubstr("10 keys, expected 0..9"));
}

}  // namespace
}  // namespace tenon
