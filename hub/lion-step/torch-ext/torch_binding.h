// The operators' implementations, by backend.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#define LION_STEP(name)                                                                                            \
  void name(at::Tensor& param, at::Tensor& exp_avg, const at::Tensor& grad, double lr, double beta1, double beta2, \
            double weight_decay, double eps)
#define LION_FOREACH(name)                                                                                    \
  void name(const std::vector<at::Tensor>& params, const std::vector<at::Tensor>& exp_avgs,                   \
            const std::vector<at::Tensor>& grads, double lr, double beta1, double beta2, double weight_decay, \
            double eps)

LION_STEP(lion_step_cpu);
LION_FOREACH(lion_foreach_cpu);
LION_STEP(lion_step_cuda);
LION_FOREACH(lion_foreach_cuda);
