// Input of both backends: the tensors of a step, checked, and its scalars.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lion_update.h"

namespace lion {

inline Scalars scalars_of(double lr, double beta1, double beta2, double weight_decay) {
  TORCH_CHECK_VALUE(std::isfinite(lr) && lr >= 0, "lr: expected a finite number of at least 0, got ", lr);
  TORCH_CHECK_VALUE(beta1 >= 0 && beta1 < 1, "beta1: expected a number in [0, 1), got ", beta1);
  TORCH_CHECK_VALUE(beta2 >= 0 && beta2 < 1, "beta2: expected a number in [0, 1), got ", beta2);
  TORCH_CHECK_VALUE(std::isfinite(weight_decay) && weight_decay >= 0,
                    "weight_decay: expected a finite number of at least 0, got ", weight_decay);
  return {static_cast<float>(1.0 - lr * weight_decay),
          static_cast<float>(beta1),
          static_cast<float>(1.0 - beta1),
          static_cast<float>(lr),
          static_cast<float>(beta2),
          static_cast<float>(1.0 - beta2)};
}

/// Throws if one of the `written` tensors shares memory with any other tensor.
inline void check_apart(const std::vector<at::TensorList>& written, at::TensorList read) {
  struct Span {
    const char *begin, *end;
    bool written;
  };
  std::vector<Span> spans;
  const auto add = [&](at::TensorList tensors, bool is_written) {
    for (const at::Tensor& t : tensors)
      if (const auto* begin = static_cast<const char*>(t.data_ptr()); t.numel())
        spans.push_back({begin, begin + t.nbytes(), is_written});
  };
  for (const at::TensorList tensors : written) add(tensors, true);
  add(read, false);
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  const char *end_written = nullptr, *end = nullptr;  // of those so far
  for (const Span& s : spans) {
    TORCH_CHECK_VALUE(s.begin >= (s.written ? end : end_written),
                      "param, exp_avg and grad: expected separate tensors, two of them share memory");
    end = std::max(end, s.end);
    if (s.written) end_written = std::max(end_written, s.end);
  }
}

/// Throws before anything is written.
inline void check_one(const at::Tensor& param, const at::Tensor& exp_avg, const at::Tensor& grad) {
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
}
inline void check(const at::Tensor& param, const at::Tensor& exp_avg, const at::Tensor& grad) {
  check_one(param, exp_avg, grad);
  check_apart({param, exp_avg}, grad);
}

/// The same for lists, which must have the same length, type and device.
inline void check(const std::vector<at::Tensor>& params, const std::vector<at::Tensor>& exp_avgs,
                  const std::vector<at::Tensor>& grads) {
  TORCH_CHECK_VALUE(params.size() == exp_avgs.size() && params.size() == grads.size(),
                    "expected lists of one length, got ", params.size(), ", ", exp_avgs.size(), " and ", grads.size());
  for (size_t i = 0; i < params.size(); ++i) {
    check_one(params[i], exp_avgs[i], grads[i]);
    TORCH_CHECK_VALUE(params[i].scalar_type() == params[0].scalar_type() && params[i].device() == params[0].device(),
                      "params: expected one type and one device, param ", i, " differs from the first");
  }
  check_apart({params, exp_avgs}, grads);
}

/// Tells autograd that the tensors were written: a backward pass that saved one then refuses to use it.
inline void count_writes(at::TensorList tensors) {
  for (const at::Tensor& t : tensors)
    if (!t.is_inference()) t.unsafeGetTensorImpl()->bump_version();
}

}  // namespace lion
