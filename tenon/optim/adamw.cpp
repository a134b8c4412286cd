// AdamW (Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2, as in torch.optim.AdamW). Per
// element, with t the step's number:
//
//   p = p (1 - lr weight_decay)
//   m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) g^2
//   p = p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
#include <cmath>

#include "tenon/expr/ops.h"
#include "tenon/optim/list_update.h"

namespace tenon {
namespace {

Launch adamw_update(Graph& g) {
  const Expr grad = list_vector(g, "grad") * scalar(g, "grad_scale"), old = list_vector(g, "param");
  const Expr m = list_vector(g, "exp_avg") * scalar(g, "beta1") + grad * scalar(g, "share1");
  const Expr v = list_vector(g, "exp_avg_sq") * scalar(g, "beta2") + grad * grad * scalar(g, "share2");
  const Expr size = sqrt(v) * scalar(g, "correction2") + scalar(g, "eps");
  const Expr p = old * scalar(g, "decay") - m / size * scalar(g, "step_size");
  return {"adamw", "map", {{"param", p}, {"exp_avg", m}, {"exp_avg_sq", v}}, {}};
}

class AdamW : public Optimizer {
 public:
  AdamW(std::shared_ptr<Backend> backend, const OptimizerOptions& o) : update_(std::move(backend), adamw_update) {
    if (o.beta1 >= 0) beta1_ = o.beta1;
    if (o.beta2 >= 0) beta2_ = o.beta2;
    if (o.eps >= 0) eps_ = o.eps;
    decay_ = o.weight_decay;
  }
  std::span<const std::string> moments() const override { return names_; }

  void step(Stream& stream, std::span<const OptimizerTensor> tensors, const OptimizerStep& s) override {
    check_step(s, tensors, names_.size());
    const auto t = static_cast<double>(s.number);
    update_.run(stream, tensors, names_, [&](const std::string& name) {
      if (name == "grad_scale") return s.grad_scale;
      if (name == "beta1") return beta1_;
      if (name == "share1") return 1 - beta1_;
      if (name == "beta2") return beta2_;
      if (name == "share2") return 1 - beta2_;
      if (name == "correction2") return 1 / std::sqrt(1 - std::pow(beta2_, t));
      if (name == "eps") return eps_;
      if (name == "decay") return 1 - s.lr * decay_;
      return s.lr / (1 - std::pow(beta1_, t));  // step_size
    });
  }

 private:
  double beta1_ = 0.9, beta2_ = 0.999, eps_ = 1e-8, decay_ = 0;  // PyTorch's defaults, except weight decay
  std::vector<std::string> names_{"exp_avg", "exp_avg_sq"};
  ListUpdate update_;
};

const RegisterOptimizer kAdamW("adamw", [](std::shared_ptr<Backend> backend, const OptimizerOptions& o) {
  return std::make_unique<AdamW>(std::move(backend), o);
});

}  // namespace
}  // namespace tenon
