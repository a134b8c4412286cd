// Policy losses on a worked example with a batch of two completions: the expressions in fp64, their gradients, and
// their plans.
#include "tenon/nn/policy_loss.h"

#include <gmock/gmock.h>

#include <map>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/vjp.h"
#include "tenon/oracle/oracle.h"
#include "tenon/runtime/executable.h"
#include "tests/support/close.h"

namespace tenon::nn {
namespace {

using Values = std::vector<double>;
const Values kCur{-1, -.5, -2, -.1, -.3, -1.2, -.7, -3}, kOld{-1.1, -.9, -1.7, -.1, -.3, -1, -1.1, -3},
    kRef{-1.2, -.5, -1.5, -.4, -.2, -1.2, -.9, -2}, kMask{1, 1, 1, 0, 1, 1, 1, 1}, kAdvantages{.45, -.45};
constexpr double kDigits = 6e-7;  // the example has six decimals

struct Example {
  Graph g;
  std::map<std::string, HostTensor> tensors;
  Expr cur = leaf("cur", kCur), old = leaf("old", kOld), ref = leaf("ref", kRef), mask = leaf("mask", kMask);
  Expr advantage = broadcast(leaf("A", kAdvantages), {2, 4});

  Expr leaf(const std::string& name, const Values& v) {
    const Shape shape{2, static_cast<int64_t>(v.size()) / 2};
    tensors.insert_or_assign(name, HostTensor::from(DType::F32, shape, v));
    return input(g, name, DType::F32, shape);
  }
  Expr total(const Expr& x) const { return sum(reshape(x, {1, 8})); }
  // The oracle reads the example in fp64, a device in f32.
  Values exact(const Expr& e) const {
    static const std::map<std::string, Values> all{
        {"cur", kCur}, {"old", kOld}, {"ref", kRef}, {"mask", kMask}, {"A", kAdvantages}};
    Oracle oracle([](const Expr& leaf) { return all.at(leaf->attrs.text); });
    return oracle.eval(e);
  }
  std::vector<float> planned(const Expr& e) const {
    HostWeights none;
    Executable x(make_plan(std::vector<Result>{{"out", e}}), make_backend("cpu"), none);
    for (const Buffer& b : x.plan().buffers)
      if (b.role == BufferRole::Input) {
        const HostTensor& t = tensors.at(b.name);
        x.set(b.name, {t.dtype, t.shape, t.data.data()});
      }
    x.run_all();
    return x.get("out");
  }
};

PolicyOptions with_kl(double beta = 0.04) {
  PolicyOptions o;
  o.beta = beta;
  return o;
}

// The mask of a row's last token hides it here, as in the loss.
TEST(PolicyLoss, PartsOfTheExample) {
  Example x;
  const Expr one = broadcast(constant(x.g, 1), {2, 4});
  const Values pg{-.497327, -.54, -.333368, -.45, .45, .368429, .671321, .45};
  EXPECT_TRUE(close(x.exact(policy_terms(x.cur, x.old, {}, x.advantage, one, {})), pg, Tolerance{kDigits}));
  const Values k3{.018731, 0, .148721, .040818, .005171, 0, .018731, .718282};
  const Expr nothing = x.advantage * 0.0;
  EXPECT_TRUE(close(x.exact(policy_terms(x.cur, x.old, x.ref, nothing, one, with_kl(1))), k3, Tolerance{kDigits}));
  const Values rho{1.105171, 1.491825, .740818, 1, 1, .818731, 1.491825, 1};
  PolicyOptions unclipped;
  unclipped.clip_high = 1e6;
  unclipped.clip_low = 0.999999;
  const Expr minus = broadcast(constant(x.g, -1), {2, 4});
  EXPECT_TRUE(close(x.exact(policy_terms(x.cur, x.old, {}, minus, one, unclipped)), rho, Tolerance{kDigits}));
}

struct Variant {
  const char* name;
  PolicyLoss kind;
  double longest, loss;
  Values gradient;
};
const std::vector<Variant>& variants() {
  static const std::vector<Variant> all{
      {"seed", PolicyLoss::DrGrpo, 1, .302720, {-.245038, 0, -.179659, 0, .222897, .184214, .339286, .190634}},
      {"dr_grpo", PolicyLoss::DrGrpo, 4, .075680, {-.061260, 0, -.044915, 0, .055724, .046054, .084821, .047659}},
      {"grpo", PolicyLoss::Grpo, 4, .018847, {-.081679, 0, -.059886, 0, .055724, .046054, .084821, .047659}},
      {"bnpo", PolicyLoss::Bnpo, 4, .086491, {-.070011, 0, -.051331, 0, .063685, .052633, .096939, .054467}},
      {"dapo", PolicyLoss::Dapo, 4, .086491, {-.070011, 0, -.051331, 0, .063685, .052633, .096939, .054467}}};
  return all;
}

TEST(PolicyLoss, GoldenLossesAndGradients) {
  for (const Variant& v : variants()) {
    Example x;
    const Expr tokens = constant(x.g, 7), weight = token_weights(x.mask, v.kind, v.longest, tokens);
    const Expr loss = x.total(policy_terms(x.cur, x.old, x.ref, x.advantage, weight, with_kl()));
    const Expr gradient = gradients(loss, {}, std::array{x.cur})[0];
    EXPECT_TRUE(close(x.exact(loss), Values{v.loss}, Tolerance{kDigits})) << v.name;
    EXPECT_TRUE(close(x.exact(gradient), v.gradient, Tolerance{kDigits})) << v.name;
    EXPECT_TRUE(close(x.planned(loss), Values{v.loss}, Tolerance{2 * kDigits})) << v.name << ", planned";
    EXPECT_TRUE(close(x.planned(gradient), v.gradient, Tolerance{2 * kDigits})) << v.name << ", planned";
  }
}

// An update whose parts have fewer than one token each on average: the sum over its parts is still a mean.
TEST(PolicyLoss, FewerTokensThanParts) {
  Example x;
  const auto first = [&](double tokens) {
    return x.exact(token_weights(x.mask, PolicyLoss::Dapo, 1, constant(x.g, tokens)))[0];
  };
  EXPECT_EQ(first(0.25), 4);
  EXPECT_EQ(x.exact(token_weights(x.mask * 0.0, PolicyLoss::Dapo, 1, constant(x.g, 0))), Values(8, 0.0));
}

// In the first epoch, without a reference: minus the mean of advantage times length, not 0.
TEST(PolicyLoss, OnPolicyValue) {
  Example x;
  const Expr weight = token_weights(x.mask, PolicyLoss::DrGrpo, 1);
  EXPECT_TRUE(close(x.exact(x.total(policy_terms(x.cur, x.cur, {}, x.advantage, weight, {}))), Values{.225},
                    Tolerance{kDigits}));
}

// Equal rewards leave only the reference's gradient; without a reference nothing.
TEST(PolicyLoss, NoAdvantageLeavesTheReference) {
  Example x;
  const Expr nothing = x.advantage * 0.0, weight = token_weights(x.mask, PolicyLoss::DrGrpo, 1);
  const auto gradient = [&](const PolicyOptions& o) {
    const Expr loss = x.total(policy_terms(x.cur, x.old, x.ref, nothing, weight, o));
    return x.exact(gradients(loss, {}, std::array{x.cur})[0]);
  };
  EXPECT_THAT(gradient({}), testing::Each(0));
  Values want;
  for (size_t i = 0; i < 8; ++i) want.push_back(kMask[i] * 0.04 * (1 - std::exp(kRef[i] - kCur[i])) / 2);
  EXPECT_TRUE(close(gradient(with_kl()), want, Tolerance{1e-12}));
}

// Masked tokens may have any value.
TEST(PolicyLoss, MaskedTokensDoNoHarm) {
  Example x;
  const Expr hidden = where(x.mask, x.cur, constant(x.g, 1e4)), weight = token_weights(x.mask, PolicyLoss::DrGrpo, 1);
  const Expr loss = x.total(policy_terms(hidden, x.old, x.ref, x.advantage, weight, with_kl()));
  EXPECT_TRUE(close(x.planned(loss), Values{.302720}, Tolerance{2 * kDigits}));
  EXPECT_EQ(x.planned(gradients(loss, {}, std::array{hidden})[0])[3], 0);
}

TEST(PolicyLoss, TwoSidedClip) {
  Example x;
  PolicyOptions o;
  o.delta = 1.3;
  const Expr one = broadcast(constant(x.g, 1), {2, 4});
  const Values got = x.exact(policy_terms(x.cur, x.old, {}, x.advantage, one, o));
  EXPECT_NEAR(got[6], .45 * 1.3, 1e-12);  // was .45 * 1.491825
  EXPECT_NEAR(got[1], -.54, 1e-12);       // the clipped product, as before
}

// k3 in f32, where the policies nearly agree: accurate to f32, unlike the plain formula.
TEST(PolicyLoss, SmallDivergences) {
  Graph g;
  const std::vector<float> d{1e-4F, -3e-3F, 0.029F, -0.031F, 0};
  const Expr cur = input(g, "cur", DType::F32, {5}), ref = input(g, "ref", DType::F32, {5}), zero = cur * 0.0;
  HostWeights none;
  Executable x(make_plan(std::vector<Result>{{"out", policy_terms(cur, cur, ref, zero, zero + 1.0, with_kl(1))}}),
               make_backend("cpu"), none);
  x.set("cur", std::vector<float>(5, 0));
  x.set("ref", d);
  x.run_all();
  std::vector<double> want, allowed;
  for (const float each : d) want.push_back(std::expm1(static_cast<double>(each)) - static_cast<double>(each));
  EXPECT_TRUE(close(x.get("out"), want, [&](size_t i, double w) { return (i == 3 ? 1e-4 : 1e-6) * w; }));
}

TEST(PolicyLoss, ErrorsNameTheThing) {
  Example x;
  const auto refuses = [](const std::string& text, const auto& call) {
    try {
      call();
      ADD_FAILURE() << "not refused: " << text;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr(text));
    }
  };
  refuses("clip low", [] { check_policy({1, 0.2, 0, 0}); });
  refuses("delta", [] { check_policy({0.2, 0.2, 0.9, 0}); });
  refuses("beta", [] { check_policy({0.2, 0.2, 0, NAN}); });
  refuses("no reference", [&] { policy_terms(x.cur, x.old, {}, x.advantage, x.mask, with_kl()); });
  refuses("dapo", [&] { token_weights(x.mask, PolicyLoss::Dapo, 4); });
}

}  // namespace
}  // namespace tenon::nn
