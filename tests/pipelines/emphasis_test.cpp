// Weights of a prompt's parts: each window separately, and A1111's rule.
#include "tenon/pipelines/emphasis.h"

#include <cmath>

#include "tenon/core/error.h"
#include "tests/support/close.h"

namespace tenon {
namespace {

constexpr int64_t kWidth = 3;

TokenWindow window(std::vector<float> weights) {
  TokenWindow w;
  w.ids.assign(weights.size(), 1);
  w.weights = std::move(weights);
  return w;
}

std::vector<float> states(size_t tokens) {
  std::vector<float> out;
  for (size_t i = 0; i < tokens * kWidth; ++i) out.push_back(std::sin(static_cast<float>(i)) + 0.3f);
  return out;
}

// One window as the web UI computes it: z *= multipliers; z *= mean before / mean after.
std::vector<double> reference(std::span<const float> z, const std::vector<float>& weights) {
  double before = 0, after = 0;
  std::vector<double> out;
  for (size_t i = 0; i < z.size(); ++i) {
    out.push_back(static_cast<double>(z[i]) * static_cast<double>(weights[i / kWidth]));
    before += static_cast<double>(z[i]);
    after += out.back();
  }
  for (double& v : out) v *= before / after;
  return out;
}

TEST(Emphasis, EveryWindowKeepsItsOwnMean) {
  const std::vector<TokenWindow> windows{window({1, 1, 1, 1}), window({1, 1.5f, 0.5f, 1}), window({1, 1.1f, 1, 1})};
  const std::vector<float> plain = states(12);
  std::vector<float> z = plain;
  apply_emphasis(z, windows, kWidth);
  const size_t each = 4 * kWidth;
  for (size_t w = 0; w < 3; ++w) {
    const std::span<const float> before(plain.data() + w * each, each), after(z.data() + w * each, each);
    EXPECT_TRUE(close(after, reference(before, windows[w].weights), Tolerance{1e-6, 1e-6})) << "window " << w;
  }
  EXPECT_TRUE(std::equal(z.begin(), z.begin() + each, plain.begin())) << "a window without weights has changed";
}

TEST(Emphasis, NegativeWeightsAndMeansOfZero) {
  std::vector<float> z = states(4);
  const std::vector<float> plain = z;
  apply_emphasis(z, std::vector{window({1, -1, 1, 1})}, kWidth);
  EXPECT_TRUE(close(z, reference(plain, {1, -1, 1, 1}), Tolerance{1e-6, 1e-6}));
  std::vector<float> gone{1, 2, 3};
  apply_emphasis(gone, std::vector{window({0})}, kWidth);
  EXPECT_EQ(gone, (std::vector<float>{0, 0, 0}));
}

// A product may be too large for a float where the rescaled value is not.
TEST(Emphasis, LargeStatesAndWeights) {
  std::vector<float> z = states(4);
  for (float& v : z) v *= 1e35F;
  const std::vector<float> plain = z;
  apply_emphasis(z, std::vector{window({1, 1e6F, 1e-6F, 1})}, kWidth);
  EXPECT_TRUE(close(z, reference(plain, {1, 1e6F, 1e-6F, 1}), Tolerance{0, 1e-6}));
}

TEST(Emphasis, SizesAreChecked) {
  std::vector<float> z = states(4);
  EXPECT_THROW(apply_emphasis(z, std::vector{window({1, 1, 1})}, kWidth), Error);
  EXPECT_THROW(apply_emphasis(z, std::vector{window({1, 1, 1, 1, 1})}, kWidth), Error);
}

}  // namespace
}  // namespace tenon
