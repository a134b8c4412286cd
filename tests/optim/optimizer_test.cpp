// AdamW, SGD and Lion as called by training: against the published formulas in double, and against torch.optim.
#include "tenon/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tenon/core/error.h"
#include "tests/fixtures/hashing.h"
#include "tests/optim/backends.h"
#include "tests/support/close.h"

namespace tenon::optim {
namespace {

// Some parameters of an optimizer on a backend.
class TrainedList {
 public:
  TrainedList(std::shared_ptr<Backend> backend, const Optimizer& optimizer, std::vector<int64_t> counts)
      : backend_(std::move(backend)), stream_(backend_->make_stream()), counts_(std::move(counts)) {
    for (const int64_t n : counts_) {
      const auto memory = [&] { return held_.emplace_back(backend_->allocate(std::max<int64_t>(n, 1) * 4)).get(); };
      OptimizerTensor t{memory(), memory(), {}, n};
      for (size_t m = 0; m < optimizer.moments().size(); ++m) t.moments[m] = memory();
      tensors_.push_back(t);
    }
  }
  void set(const void* memory, const std::vector<float>& values) {
    backend_->copy_in(*stream_, const_cast<void*>(memory), values.data(), static_cast<int64_t>(values.size()) * 4);
  }
  std::vector<float> get(const void* memory, int64_t count) const {
    std::vector<float> out(static_cast<size_t>(count));
    backend_->copy_out(*stream_, out.data(), memory, count * 4);
    return out;
  }
  void step(Optimizer& o, const OptimizerStep& s) { o.step(*stream_, tensors_, s); }
  const std::vector<OptimizerTensor>& tensors() const { return tensors_; }

 private:
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Stream> stream_;
  std::vector<int64_t> counts_;
  std::vector<std::shared_ptr<void>> held_;
  std::vector<OptimizerTensor> tensors_;
};

// The published formulas, one element, in double.
struct Exact {
  double p, m = 0, v = 0;
  void step(const std::string& name, double g, const OptimizerOptions& o, const OptimizerStep& s) {
    g *= s.grad_scale;
    const auto t = static_cast<double>(s.number);
    if (name == "adamw") {
      p -= s.lr * o.weight_decay * p;
      m = o.beta1 * m + (1 - o.beta1) * g;
      v = o.beta2 * v + (1 - o.beta2) * g * g;
      const double m_hat = m / (1 - std::pow(o.beta1, t)), v_hat = v / (1 - std::pow(o.beta2, t));
      p -= s.lr * m_hat / (std::sqrt(v_hat) + o.eps);
    } else if (name == "sgd") {
      m = o.beta1 * m + g + o.weight_decay * p;
      p -= s.lr * m;
    } else {
      const double u = o.beta1 * m + (1 - o.beta1) * g;
      p = p * (1 - s.lr * o.weight_decay) - s.lr * (u > 0 ? 1 : u < 0 ? -1 : 0);
      m = o.beta2 * m + (1 - o.beta2) * g;
    }
  }
};

class Optimizers : public testing::TestWithParam<const char*> {};

TEST_P(Optimizers, FollowTheFormulas) {
  const OptimizerOptions options{0.9, 0.99, 1e-8, 0.1};
  const std::vector<int64_t> counts{1, 0, 17, 1025};
  for (const Ground& ground : grounds()) {
    const std::unique_ptr<Optimizer> optimizer = make_optimizer(GetParam(), ground.backend, options);
    TrainedList list(ground.backend, *optimizer, counts);
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<std::vector<Exact>> exact(counts.size());
    for (size_t t = 0; t < counts.size(); ++t) {
      std::vector<float> p(static_cast<size_t>(counts[t]));
      for (float& x : p) exact[t].push_back({static_cast<double>(x = normal(random))});
      list.set(list.tensors()[t].param, p);
    }
    for (int64_t n = 1; n <= 12; ++n) {
      const OptimizerStep step{1e-2 / static_cast<double>(n), n, n % 3 ? 1 : 0.125};
      for (size_t t = 0; t < counts.size(); ++t) {
        std::vector<float> g(static_cast<size_t>(counts[t]));
        for (size_t i = 0; i < g.size(); ++i) {
          g[i] = normal(random);
          exact[t][i].step(GetParam(), static_cast<double>(g[i]), options, step);
        }
        list.set(list.tensors()[t].grad, g);
      }
      list.step(*optimizer, step);
    }
    for (size_t t = 0; t < counts.size(); ++t) {
      std::vector<double> want;
      for (const Exact& e : exact[t]) want.push_back(e.p);
      const std::vector<float> got = list.get(list.tensors()[t].param, counts[t]);
      EXPECT_TRUE(close(got, want, Tolerance{4e-6})) << ground.name << ", tensor " << t;  // about 30 roundings near 4
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, Optimizers, testing::Values("adamw", "sgd", "lion"),
                         [](const auto& each) { return std::string(each.param); });

TEST(OptimizerParity, TorchOptim) {
  const nlohmann::json all = nlohmann::json::parse(std::ifstream(TENON_SOURCE_DIR "/tests/fixtures/training.json"));
  for (const nlohmann::json& c : all.at("optimizers")) {
    OptimizerOptions o;
    o.weight_decay = c.at("weight_decay");
    if (c.contains("betas")) o.beta1 = c["betas"][0], o.beta2 = c["betas"][1], o.eps = c["eps"];
    if (c.contains("momentum")) o.beta1 = c["momentum"];
    for (const Ground& ground : grounds()) {
      const std::unique_ptr<Optimizer> optimizer = make_optimizer(c.at("name"), ground.backend, o);
      const auto count = static_cast<int64_t>(c.at("after")[0].size());
      const auto hashes = [&](uint32_t k) {
        std::vector<float> out;
        for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<float>(fixtures::u(k, static_cast<uint32_t>(i))));
        return out;
      };
      TrainedList list(ground.backend, *optimizer, {count});
      list.set(list.tensors()[0].param, hashes(900));
      for (size_t step = 0; step < c.at("after").size(); ++step) {
        list.set(list.tensors()[0].grad, hashes(901 + static_cast<uint32_t>(step)));
        list.step(*optimizer, {c.at("lr"), static_cast<int64_t>(step) + 1, 1});
        EXPECT_TRUE(close(list.get(list.tensors()[0].param, count), c["after"][step].get<std::vector<double>>(),
                          Tolerance{1e-6}))
            << ground.name << ", " << c.at("name") << ", step " << step;
      }
    }
  }
}

TEST(OptimizerErrors, NameWhatIsWrong) {
  const std::shared_ptr<Backend> backend = make_backend("cpu");
  const auto refuses = [](const std::string& text, const auto& call) {
    try {
      call();
      ADD_FAILURE() << "not refused: " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Usage);
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  };
  refuses("adamw, lion, sgd", [&] { make_optimizer("adam", backend); });
  refuses("beta1", [&] { make_optimizer("adamw", backend, {1, -1, -1, 0}); });
  refuses("weight_decay", [&] { make_optimizer("sgd", backend, {-1, -1, -1, -2}); });
  const std::unique_ptr<Optimizer> adamw = make_optimizer("adamw", backend);
  TrainedList list(backend, *adamw, {3});
  refuses("lr", [&] { list.step(*adamw, {-1, 1, 1}); });
  refuses("step", [&] { list.step(*adamw, {1, 0, 1}); });
  refuses("grad_scale", [&] { list.step(*adamw, {1, 1, NAN}); });
  OptimizerTensor missing = list.tensors()[0];
  missing.moments[1] = nullptr;
  refuses("tensor 0", [&] { adamw->step(*backend->make_stream(), std::array{missing}, {1, 1, 1}); });
}

}  // namespace
}  // namespace tenon::optim
