// An epilogue sees some columns of its rows at a time. Other tensors that it reads may involve reductions of whole
// rows: these must be in memory before, whatever precedes the epilogue and however long the rows are.
#include <gtest/gtest.h>

#include <random>

#include "tenon/explain/plan_counts.h"
#include "tenon/expr/ops.h"
#include "tenon/oracle/oracle.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/executable.h"
#include "tests/planned/devices.h"
#include "tests/support/close.h"

namespace tenon::planned {
namespace {

constexpr int64_t kMost = 10240;

Expr softmax(const Expr& x) {
  const Expr e = exp(x - reduce_max(x));
  return e / sum(e);
}
Expr rms_norm(const Expr& x) { return x * rsqrt(mean(x * x) + 1e-6); }
Expr layer_norm(const Expr& x) {
  const Expr d = x - mean(x);
  return d * rsqrt(mean(d * d) + 1e-5);
}

class ReductionsBeside : public testing::Test {
 protected:
  Graph g;

  Expr in(const std::string& name, const Shape& shape) { return input(g, name, DType::F32, shape); }
  Expr weight(const std::string& name, const Shape& shape) { return param(g, name, DType::F32, shape); }

  /// EXPECTs the oracle's value everywhere, and `launches` launches.
  void expect(const Expr& y, int launches) {
    SCOPED_TRACE(print(y));
    std::map<std::string, HostTensor> tensors;
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    for (const Expr& e : topological(std::array{y})) {
      if (!is_memory_leaf(e)) continue;
      std::vector<double> values(static_cast<size_t>(e.shape().numel()));
      const double terms = static_cast<double>(e.shape().numel() / e.shape()[0]);
      for (double& v : values) v = normal(random) / (e.is<nodes::Param>() ? std::sqrt(terms) : 1);
      tensors.emplace(e->attrs.text, HostTensor::from(DType::F32, e.shape(), values));
    }
    const std::vector<double> want = Oracle(tensors).eval(y);
    const Plan plan = make_plan(std::array{Result{"y", y}});
    EXPECT_EQ(counts_of(plan).total, launches) << print_plan(plan);
    HostWeights weights;
    for (const auto& [name, t] : tensors) weights.add(name, {t.dtype, t.shape, t.data.data()});
    for (const Device& device : devices()) {
      Executable run(plan, device.backend, weights);
      for (const Buffer& b : plan.buffers)
        if (b.role == BufferRole::Input) run.set(b.name, weights.find(b.name));
      run.run_all();
      EXPECT_TRUE(close(run.get("y"), want, Tolerance{2e-5, 2e-5})) << device.name;
    }
  }
};

TEST_F(ReductionsBeside, AProduct) {
  for (const int64_t n : {1, 63, 64, 65, 128, 300}) {
    const std::string id = std::to_string(n);
    const Expr y = linear(in("x" + id, {3, 16}), weight("w" + id, {n, 16})), h = in("h" + id, {3, n});
    expect(y + softmax(h), 2);
    expect(y * rms_norm(h), 2);
    expect(layer_norm(h) - y, 2);
    expect(y + absmax(h), 2);
  }
}

TEST_F(ReductionsBeside, RowsOfSeveralAxes) {
  const Expr y = linear(in("x", {2, 3, 16}), weight("w", {130, 16})), h = in("h", {2, 3, 130});
  expect(y + rms_norm(h), 2);
  expect(reshape(y + softmax(h), {6, 130}), 2);
  expect(permute(y * sum(h), {1, 0, 2}), 2);
}

TEST_F(ReductionsBeside, ProductsOfActivations) {
  const Expr y = linear(in("a", {2, 5, 16}), in("b", {2, 200, 16}));
  expect(y + softmax(in("h", {2, 5, 200})), 2);
  expect(y - rms_norm(in("h", {2, 5, 200})), 2);
}

TEST_F(ReductionsBeside, LanesOfAGate) {
  const Expr both = linear(in("x", {4, 16}), weight("w", {200, 16}));
  const Expr gated = slice(both, -1, 0, 100) * gelu(slice(both, -1, 100, 200));
  expect(gated + softmax(in("h", {4, 100})), 2);
  expect(gated * rms_norm(in("h", {4, 100})), 2);
}

TEST_F(ReductionsBeside, Convolutions) {
  const Expr h = in("h", {1, 6, 7, 72});
  expect(conv2d(in("x", {1, 6, 7, 16}), weight("w", {72, 16, 3, 3}), 1, {1, 1, 1, 1}) + softmax(h), 2);
  expect(conv2d(in("x", {1, 6, 7, 16}), weight("v", {72, 16, 1, 1})) * rms_norm(h), 2);
  const Expr large = in("large", {1, 32, 32, 16});  // by Winograd's algorithm on a CPU
  expect(conv2d(large, weight("u", {80, 16, 3, 3}), 1, {1, 1, 1, 1}) + layer_norm(in("beside", {1, 32, 32, 80})), 2);
}

TEST_F(ReductionsBeside, Attention) {
  const Expr q = in("q", {1, 2, 20, 16}), k = in("k", {1, 2, 30, 16});
  expect(attention(q, k, k, 0.25) + softmax(in("h", {1, 2, 20, 16})), 2);
}

TEST_F(ReductionsBeside, OfWhatOtherReductionsMake) {
  const Expr y = linear(in("x", {3, 16}), weight("w", {130, 16})), h = in("h", {3, 130}), k = in("k", {3, 130});
  expect(y + softmax(layer_norm(h)), 2);
  expect(y + softmax(h) * rms_norm(k), 2);
  expect(y + softmax(h) + mean(in("short", {3, 7})), 2);
}

TEST_F(ReductionsBeside, ReductionsThatAreThereAlready) {
  const Expr h = in("h", {3, 130}), y = linear(in("x", {3, 16}), weight("w", {130, 16}));
  expect(linear(y + softmax(h), weight("v", {130, 130})) * softmax(h), 3);
  expect(linear(y - reduce_max(h), weight("v", {130, 130})) + softmax(h), 4);
}

TEST_F(ReductionsBeside, ResultsThatAreReadTwice) {
  const Expr y = linear(in("x", {3, 16}), weight("w", {130, 16})), n = rms_norm(in("h", {3, 130}));
  expect(linear(y + n, weight("v", {40, 130})) + softmax(slice(n, -1, 0, 40)), 4);
}

// linear(x, w) + softmax(h) + rms_norm(h) over rows of n columns, in the caller's memory.
class RowsOfEveryLength {
 public:
  RowsOfEveryLength() : random_(5) {
    for (std::vector<float>* v : {&w_, &h_, &y_})
      for (int64_t i = 0; i < 2 * kMost; ++i) v->push_back(normal_(random_));
  }

  void expect(int64_t n, const Device& device) {
    Graph g;
    const Expr h = input(g, "h", DType::F32, {2, n});
    const Expr y = linear(input(g, "x", DType::F32, {2, 1}), param(g, "w", DType::F32, {n, 1})) + softmax(h);
    PlanOptions options;
    options.outside = true;
    const Plan plan = make_plan(std::array{Result{"y", y + rms_norm(h)}}, options);
    const HostWeights weights({{"w", {DType::F32, {n, 1}, w_.data()}}});
    const auto bytes = static_cast<int64_t>(sizeof(float));
    std::map<std::string, std::shared_ptr<void>> memory;
    std::map<std::string, void*> at;
    const std::shared_ptr<Stream> stream = device.backend->make_stream();
    for (const auto& [name, size, values] : {std::tuple{"x", int64_t{2}, kX},
                                             {"h", 2 * n, h_.data()},
                                             {"y", 2 * n, static_cast<const float*>(y_.data())}}) {
      memory[name] = device.backend->allocate(size * bytes);
      device.backend->copy_in(*stream, memory[name].get(), values, size * bytes);
      at[name] = memory[name].get();
    }
    Executable run(plan, device.backend, weights, at);
    run.run_all();
    const std::vector<float> got = run.get("y");
    EXPECT_TRUE(close(got, wanted(n), Tolerance{1e-5, 1e-5})) << n << " columns, " << device.name;
  }

 private:
  std::vector<double> wanted(int64_t n) const {
    std::vector<double> out;
    for (int64_t row = 0; row < 2; ++row) {
      const float* h = h_.data() + row * n;
      double top = -INFINITY, total = 0, squares = 0;
      for (int64_t i = 0; i < n; ++i) {
        top = std::max<double>(top, h[i]);
        squares += static_cast<double>(h[i]) * h[i];
      }
      for (int64_t i = 0; i < n; ++i) total += std::exp(h[i] - top);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
      for (int64_t i = 0; i < n; ++i)
        out.push_back(static_cast<double>(kX[row]) * w_[static_cast<size_t>(i)] + std::exp(h[i] - top) / total +
                      h[i] * scale);
    }
    return out;
  }

  static constexpr float kX[] = {1.5f, -0.75f};
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  std::vector<float> w_, h_, y_;
};

// Tiles are 16 to 256 columns wide.
bool near_a_tile(int64_t n) { return n <= 130 || n % 256 <= 1 || n % 256 == 255 || (n < 1100 && (n + 1) % 32 <= 2); }

// A length matters through its number of whole tiles and the remainder: covers all lengths up to five of the widest
// tiles, lengths near any number of them, and some others with every remainder.
bool tells_something(int64_t n) { return n <= 1300 || near_a_tile(n) || n % 37 == 0; }

TEST(ReductionsBesideAProduct, RowsOfEveryLength) {
  RowsOfEveryLength rows;
  const bool few = slow_devices() || sanitized();
  size_t tried = 0;
  for (int64_t n = 1; n <= kMost; ++n) {
    if (few ? !near_a_tile(n) : !tells_something(n)) continue;
    const size_t device = few ? static_cast<size_t>(n / 2) : tried++;
    rows.expect(n, devices()[device % devices().size()]);
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

}  // namespace
}  // namespace tenon::planned
