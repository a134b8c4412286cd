// Phases of one executable: a slower one may run again by itself, and what it writes harms no other.
#include <gtest/gtest.h>

#include "tenon/expr/ops.h"
#include "tenon/runtime/executable.h"

namespace tenon::phases_test {
namespace {

constexpr int64_t kSide = 64;

class Phases : public testing::Test {
 protected:
  // y = linear(x, w) + f(s) + g(p), where f and g are two linear layers each: every slower phase has a temporary, f's
  // of four times the size, and a result for the step.
  static Plan plan() {
    Graph g;
    const Shape square{kSide, kSide};
    const Expr w = param(g, "w", DType::F32, square), up = param(g, "up", DType::F32, {4 * kSide, kSide}),
               down = param(g, "down", DType::F32, {kSide, 4 * kSide});
    const auto layers = [&](const char* name, Rate rate, const Expr& first, const Expr& second) {
      return linear(silu(linear(input(g, name, DType::F32, square, rate), first)), second);
    };
    const Expr y = linear(input(g, "x", DType::F32, square), w) + layers("s", Rate::Schedule, up, down) +
                   layers("p", Rate::Prompt, w, w);
    return make_plan(std::array{Result{"y", y}});
  }
  Executable prepared() {
    std::vector<float> w(4 * kSide * kSide);
    for (size_t i = 0; i < w.size(); ++i) w[i] = 0.01f * static_cast<float>(i % 13) - 0.05f;
    return Executable(plan(), backend_,
                      HostWeights({{"w", {DType::F32, {kSide, kSide}, w.data()}},
                                   {"up", {DType::F32, {4 * kSide, kSide}, w.data()}},
                                   {"down", {DType::F32, {kSide, 4 * kSide}, w.data()}}}));
  }
  static void set(Executable& e, const std::string& name, float value) {
    e.set(name, std::vector<float>(kSide * kSide, value));
  }
  // What an executable computes that runs all phases.
  std::vector<float> expected(float s, float p, float x) {
    Executable e = prepared();
    set(e, "s", s);
    set(e, "p", p);
    set(e, "x", x);
    e.run_all();
    return e.get("y");
  }

  std::shared_ptr<Backend> backend_ = make_backend("cpu", {2});
};

TEST_F(Phases, ASlowerOneRunsAgainByItself) {
  Executable e = prepared();
  set(e, "s", 1);
  set(e, "p", 2);
  set(e, "x", 3);
  e.run_all();
  ASSERT_EQ(e.get("y"), expected(1, 2, 3));
  set(e, "s", 5);
  e.run(Rate::Schedule);
  e.run();
  EXPECT_EQ(e.get("y"), expected(5, 2, 3));
  set(e, "p", 7);
  e.run(Rate::Prompt);
  e.run();
  EXPECT_EQ(e.get("y"), expected(5, 7, 3));
  set(e, "s", 2);
  e.run(Rate::Schedule);
  set(e, "x", 4);
  e.run();
  EXPECT_EQ(e.get("y"), expected(2, 7, 4));
}

}  // namespace
}  // namespace tenon::phases_test
