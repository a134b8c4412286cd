// Input of both backends: the tensors of a step, checked, and its scalars.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "lion_update.h"

namespace lion {

inline Scalars scalars_of(double lr, double beta1, double beta2, double weight_decay) {
  TORCH_CHECK_VALUE(lr >= 0, "lr: expected a number of at least 0, got ", lr);
  TORCH_CHECK_VALUE(beta1 >= 0 && beta1 < 1, "beta1: expected a number in [0, 1), got ", beta1);
  TORCH_CHECK_VALUE(beta2 >= 0 && beta2 < 1, "beta2: expected a number in [0, 1), got ", beta2);
  TORCH_CHECK_VALUE(weight_decay >= 0, "weight_decay: expected a number of at least 0, got ", weight_decay);
  return {static_cast<float>(1.0 - lr * weight_decay),
          static_cast<float>(beta1),
          static_cast<float>(1.0 - beta1),
          static_cast<float>(lr),
          static_cast<float>(beta2),
          static_cast<float>(1.0 - beta2)};
}

inline bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto *begin_a = static_cast<const char*>(a.data_ptr()), *begin_b = static_cast<const char*>(b.data_ptr());
  return begin_a < begin_b + b.nbytes() && begin_b < begin_a + a.nbytes() && a.numel() && b.numel();
}

/// Throws before anything is written.
inline void check(const at::Tensor& param, const at::Tensor& exp_avg, const at::Tensor& grad) {
  const auto type = param.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf,
                    "param: expected float32, bfloat16 or float16, got ", type);
  for (const auto& [tensor, name] :
       {std::pair<const at::Tensor&, const char*>{param, "param"}, {exp_avg, "exp_avg"}, {grad, "grad"}}) {
    TORCH_CHECK_VALUE(tensor.scalar_type() == type, name, ": expected ", type, " like param, got ",
                      tensor.scalar_type());
    TORCH_CHECK_VALUE(tensor.sizes() == param.sizes(), name, ": expected shape ", param.sizes(), ", got ",
                      tensor.sizes());
    TORCH_CHECK_VALUE(tensor.device() == param.device(), name, ": expected ", param.device(), ", got ",
                      tensor.device());
    TORCH_CHECK_VALUE(tensor.is_contiguous(), name, ": expected a contiguous tensor");
  }
  TORCH_CHECK_VALUE(!overlap(param, exp_avg) && !overlap(param, grad) && !overlap(exp_avg, grad),
                    "param, exp_avg and grad: expected separate tensors, two of them share memory");
}

/// The same for lists, which must have the same length, type and device.
inline void check(const std::vector<at::Tensor>& params, const std::vector<at::Tensor>& exp_avgs,
                  const std::vector<at::Tensor>& grads) {
  TORCH_CHECK_VALUE(params.size() == exp_avgs.size() && params.size() == grads.size(),
                    "expected lists of one length, got ", params.size(), ", ", exp_avgs.size(), " and ", grads.size());
  for (size_t i = 0; i < params.size(); ++i) {
    check(params[i], exp_avgs[i], grads[i]);
    TORCH_CHECK_VALUE(params[i].scalar_type() == params[0].scalar_type() && params[i].device() == params[0].device(),
                      "params: expected one type and one device, param ", i, " differs from the first");
  }
}

}  // namespace lion
