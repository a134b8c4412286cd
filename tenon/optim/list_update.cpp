#include "tenon/optim/list_update.h"

#include <algorithm>
#include <cmath>

#include "tenon/backend/list_form.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {

Expr list_vector(Graph& g, const char* name) { return input(g, name, DType::F32, Shape{kListLength}); }

void ListUpdate::run(Stream& stream, size_t count, const std::function<int64_t(size_t)>& length,
                     const std::function<void*(size_t, const std::string&)>& vector,
                     const std::function<double(const std::string&)>& number) {
  if (!kernel_) {
    launch_ = make_(graph_);
    const std::optional<std::string> refused = form_launch(launch_);
    TENON_CHECK(Internal, !refused, launch_.name) << *refused;
    kernel_ = backend_->prepare_list(launch_);
  }
  const std::span<const std::string> names = kernel_->vectors();
  items_.assign(count, {});
  for (size_t i = 0; i < count; ++i) {
    items_[i].count = length(i);
    for (size_t v = 0; v < names.size(); ++v) items_[i].vectors[v] = vector(i, names[v]);
  }
  std::vector<float> numbers;
  for (const std::string& name : kernel_->scalars()) numbers.push_back(static_cast<float>(number(name)));
  kernel_->run(stream, items_, numbers);
}

void ListUpdate::run(Stream& stream, std::span<const OptimizerTensor> tensors, std::span<const std::string> moments,
                     const std::function<double(const std::string&)>& number) {
  const auto vector = [&](size_t i, const std::string& name) -> void* {
    if (name == "param") return tensors[i].param;
    if (name == "grad") return const_cast<void*>(tensors[i].grad);  // the launch only reads it
    const auto at = std::ranges::find(moments, name) - moments.begin();
    return tensors[i].moments[static_cast<size_t>(at)];
  };
  run(
      stream, tensors.size(), [&](size_t i) { return tensors[i].count; }, vector, number);
}

void check_step(const OptimizerStep& step, std::span<const OptimizerTensor> tensors, size_t moments) {
  TENON_CHECK(Usage, std::isfinite(step.lr) && step.lr >= 0, "lr")
      << "expected a number of at least 0, found " << step.lr;
  TENON_CHECK(Usage, step.number >= 1, "step") << "expected a number from 1, found " << step.number;
  TENON_CHECK(Usage, std::isfinite(step.grad_scale), "grad_scale") << "expected a number, found " << step.grad_scale;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const OptimizerTensor& t = tensors[i];
    bool all = t.param && t.grad;
    for (size_t m = 0; m < moments; ++m) all = all && t.moments[m];
    TENON_CHECK(Usage, t.count >= 0 && (all || t.count == 0), "tensor " + std::to_string(i))
        << "expected addresses of param, grad and moments, found null";
  }
}

}  // namespace tenon
