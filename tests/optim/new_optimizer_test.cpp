// An optimizer that is not in the tree: its one file is all that training needs of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/optim/list_update.h"
#include "tests/optim/backends.h"

namespace tenon {
namespace {

// signSGD (Bernstein et al. 2018): p = p - lr sign(g).
Launch sign_update(Graph& g) {
  const Expr grad = list_vector(g, "grad") * scalar(g, "grad_scale");
  return {"sign_sgd", "map", {{"param", list_vector(g, "param") - sign(grad) * scalar(g, "lr")}}, {}};
}

class SignSgd : public Optimizer {
 public:
  explicit SignSgd(std::shared_ptr<Backend> backend) : update_(std::move(backend), sign_update) {}
  std::span<const std::string> moments() const override { return {}; }
  void step(Stream& stream, std::span<const OptimizerTensor> tensors, const OptimizerStep& s) override {
    check_step(s, tensors, 0);
    update_.run(stream, tensors, {},
                [&](const std::string& name) { return name == "grad_scale" ? s.grad_scale : s.lr; });
  }

 private:
  ListUpdate update_;
};

const RegisterOptimizer kSignSgd("sign_sgd", [](std::shared_ptr<Backend> backend, const OptimizerOptions&) {
  return std::make_unique<SignSgd>(std::move(backend));
});

TEST(NewOptimizer, IsFoundByName) {
  EXPECT_THAT(optimizer_names(), testing::Contains("sign_sgd"));
  try {
    make_optimizer("sign_sdg", make_backend("cpu"));
    FAIL() << "made an optimizer of another name";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("sign_sgd"));
  }
}

TEST(NewOptimizer, Steps) {
  for (const optim::Ground& ground : optim::grounds()) {
    Backend& backend = *ground.backend;
    const std::unique_ptr<Optimizer> o = make_optimizer("sign_sgd", ground.backend);
    const std::shared_ptr<Stream> stream = backend.make_stream();
    const std::vector<float> p = {1, 2, 3, -4, 5}, g = {0.5, -0.25, 0, 8, -1e-3};
    const int64_t bytes = std::ssize(p) * 4;
    const std::shared_ptr<void> param = backend.allocate(bytes), grad = backend.allocate(bytes);
    backend.copy_in(*stream, param.get(), p.data(), bytes);
    backend.copy_in(*stream, grad.get(), g.data(), bytes);
    const OptimizerTensor tensor{param.get(), grad.get(), {}, std::ssize(p)};
    o->step(*stream, std::array{tensor}, {.lr = 0.5, .number = 1, .grad_scale = 2});
    std::vector<float> got(p.size());
    backend.copy_out(*stream, got.data(), param.get(), bytes);
    EXPECT_EQ(got, (std::vector<float>{0.5, 2.5, 3, -4.5, 5.5})) << ground.name;
  }
}

}  // namespace
}  // namespace tenon
