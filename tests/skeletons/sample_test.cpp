// The sample skeleton.
#include <cmath>

#include "tests/skeletons/harness.h"

namespace tenon::launches {
namespace {

using Samples = LaunchTest;

HostTensor numbers_of(DType t, const Shape& shape, const std::vector<double>& values) {
  HostTensor x = random_tensor(t, shape, 1);
  for (size_t i = 0; i < values.size(); ++i) store_element(t, x.data.data(), static_cast<int64_t>(i), values[i]);
  return x;
}

class SampleRows {
 public:
  SampleRows(Graph& g, Tensors& tensors, const std::string& id, const std::vector<std::array<double, 4>>& rules)
      : g_(g), tensors_(tensors), id_(id), rows_(std::ssize(rules)) {
    std::vector<double> rule, seed, counter;
    for (size_t r = 0; r < rules.size(); ++r) {
      rule.insert(rule.end(), rules[r].begin(), rules[r].end());
      for (int i = 0; i < 4; ++i) seed.push_back(static_cast<double>((r * 7919 + 13 * id.size()) % 65536 * (i < 2)));
      counter.push_back(static_cast<double>(3 * r + 1));
    }
    give("rule", DType::F32, {rows_, 4}, rule);
    give("seed", DType::I32, {rows_, 4}, seed);
    give("counter", DType::I32, {rows_}, counter);
  }
  Expr of(const Expr& scores) const {
    return sample(scores, input(g_, id_ + ".rule", DType::F32, {rows_, 4}),
                  input(g_, id_ + ".seed", DType::I32, {rows_, 4}), input(g_, id_ + ".counter", DType::I32, {rows_}));
  }

 private:
  void give(const char* name, DType t, const Shape& shape, const std::vector<double>& values) {
    tensors_.insert_or_assign(id_ + "." + name, numbers_of(t, shape, values));
  }
  Graph& g_;
  Tensors& tensors_;
  std::string id_;
  int64_t rows_;
};

constexpr Rounding kScores{DType::F32, DType::F32, 8, 1};

// Temperature, top-k, top-p and min-p, alone and together, leaving few, nearly all or, if it were allowed, no tokens.
TEST_F(Samples, EveryRuleOverRowsOfEveryLength) {
  const std::vector<std::array<double, 4>> rules = {
      {0, 0, 1, 0},      {1, 0, 1, 0},   {0.7, 0, 1, 0},    {1, 1, 1, 0},        {1.3, 20, 1, 0}, {1, 0, 0.9, 0},
      {1, 0, 0.01, 0},   {1, 0, 1, 0.1}, {0.7, 20, 0.8, 0}, {2, 50, 0.95, 0.05}, {1, 3000, 1, 0}, {1, 0, 0.9999, 0},
      {1, 5000, 0.9, 0}, {1, 0, 0, 0},   {1, 0, -1, 0},     {1, 0, 1, 2},        {1, 3, 0, 1.5}};
  for (const int64_t tokens : {1, 2, 31, 300, 4097, 20011}) {
    const std::string id = numbered("v", tokens);
    const SampleRows rows(g, tensors, id, rules);
    const Shape shape{std::ssize(rules), tokens};
    tensors.emplace(id + ".scores", random_tensor(DType::F32, shape, 11, 3));
    expect(launch("sample", {{id, rows.of(input(g, id + ".scores", DType::F32, shape))}}), kScores);
  }
}

// Computed scores, of a type that is widened; parts of the result combined in an epilogue.
TEST_F(Samples, MathsAround) {
  const SampleRows rows(g, tensors, "m", {{1, 0, 1, 0}, {0, 0, 1, 0}, {1, 9, 1, 0}});
  const Expr x = input(g, "x", DType::BF16, {3, 130}), made = rows.of(silu(x) * 4.0);
  const Expr token = slice(made, -1, 0, 1), log_probability = slice(made, -1, 1, 2);
  expect(launch("sample", {{"both", token * 2.0 + log_probability}, {"token", cast(reshape(token, {3}), DType::I32)}}),
         {DType::F32, DType::F32, 8, 300});
  expect(launch("sample", {{"log", log_probability}, {"id", cast(token, DType::I32)}}), kScores);
}

// Ties, and scores that leave no token.
TEST_F(Samples, EqualScoresAndNone) {
  const SampleRows rows(g, tensors, "t",
                        {{0, 0, 1, 0}, {1, 2, 1, 0}, {1, 0, 0.3, 0}, {1, 0, 1, 0}, {0, 0, 1, 0}, {1, 3, 0.5, 0}});
  tensors.emplace("ties",
                  numbers_of(DType::F32, {6, 4}, {1,         5,  5,         2,  1, 5, 5,   2, 1, 5,        5, 2,
                                                  -INFINITY, -3, -INFINITY, -9, 1, 2, NAN, 4, 1, INFINITY, 3, 4}));
  expect(launch("sample", {{"made", rows.of(input(g, "ties", DType::F32, {6, 4}))}}), kScores, NaN::MayBeExpected);
}

}  // namespace
}  // namespace tenon::launches
