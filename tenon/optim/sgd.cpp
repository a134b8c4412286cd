// Stochastic gradient descent with momentum (Sutskever et al. 2013, "On the importance of initialization and momentum
// in deep learning", in the form of torch.optim.SGD without dampening). Per element:
//
//   g = g + weight_decay p
//   b = momentum b + g        in the first step b = g, since b is initially zero
//   p = p - lr b
//
// Without momentum, no tensor is kept.
#include "tenon/expr/ops.h"
#include "tenon/optim/list_update.h"

namespace tenon {
namespace {

Launch sgd_update(Graph& g, bool momentum) {
  const Expr old = list_vector(g, "param");
  const Expr grad = list_vector(g, "grad") * scalar(g, "grad_scale") + old * scalar(g, "weight_decay");
  const Expr b = momentum ? list_vector(g, "momentum_buffer") * scalar(g, "momentum") + grad : grad;
  Launch launch{"sgd", "map", {{"param", old - b * scalar(g, "lr")}}, {}};
  if (momentum) launch.outputs.push_back({"momentum_buffer", b});
  return launch;
}

class Sgd : public Optimizer {
 public:
  Sgd(std::shared_ptr<Backend> backend, const OptimizerOptions& o)
      : momentum_(o.beta1 > 0 ? o.beta1 : 0),
        decay_(o.weight_decay),
        update_(std::move(backend), [with = o.beta1 > 0](Graph& g) { return sgd_update(g, with); }) {
    if (momentum_ > 0) names_.emplace_back("momentum_buffer");
  }
  std::span<const std::string> moments() const override { return names_; }

  void step(Stream& stream, std::span<const OptimizerTensor> tensors, const OptimizerStep& s) override {
    check_step(s, tensors, names_.size());
    update_.run(stream, tensors, names_, [&](const std::string& name) {
      if (name == "grad_scale") return s.grad_scale;
      if (name == "weight_decay") return decay_;
      return name == "momentum" ? momentum_ : s.lr;
    });
  }

 private:
  double momentum_, decay_;
  std::vector<std::string> names_;
  ListUpdate update_;
};

const RegisterOptimizer kSgd("sgd", [](std::shared_ptr<Backend> backend, const OptimizerOptions& o) {
  return std::make_unique<Sgd>(std::move(backend), o);
});

}  // namespace
}  // namespace tenon
