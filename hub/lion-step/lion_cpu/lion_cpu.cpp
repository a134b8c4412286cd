// The step on CPU tensors, using all threads of PyTorch's pool.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "lion_tensors.h"

namespace {

template <class T>
void step(T* param, T* exp_avg, const T* grad, int64_t count, const lion::Scalars& s) {
  at::parallel_for(0, count, 1 << 15, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const lion::Updated u =
          lion::update(static_cast<float>(param[i]), static_cast<float>(exp_avg[i]), static_cast<float>(grad[i]), s);
      param[i] = static_cast<T>(u.param);
      exp_avg[i] = static_cast<T>(u.exp_avg);
    }
  });
}

}  // namespace

void lion_foreach_cpu(const std::vector<at::Tensor>& params, const std::vector<at::Tensor>& exp_avgs,
                      const std::vector<at::Tensor>& grads, double lr, double beta1, double beta2, double weight_decay,
                      double) {
  const lion::Scalars s = lion::scalars_of(lr, beta1, beta2, weight_decay);
  lion::check(params, exp_avgs, grads);
  for (size_t i = 0; i < params.size(); ++i)
    AT_DISPATCH_SWITCH(params[i].scalar_type(), "lion_step", AT_DISPATCH_CASE(at::kFloat, [&] {
                         step(params[i].data_ptr<float>(), exp_avgs[i].data_ptr<float>(),
                              grads[i].const_data_ptr<float>(), params[i].numel(), s);
                       }) AT_DISPATCH_CASE_REDUCED_FLOATING_TYPES([&] {
                         step(params[i].data_ptr<scalar_t>(), exp_avgs[i].data_ptr<scalar_t>(),
                              grads[i].const_data_ptr<scalar_t>(), params[i].numel(), s);
                       }));
  lion::count_writes(params);
  lion::count_writes(exp_avgs);
}

void lion_step_cpu(at::Tensor& param, at::Tensor& exp_avg, const at::Tensor& grad, double lr, double beta1,
                   double beta2, double weight_decay, double eps) {
  lion_foreach_cpu({param}, {exp_avg}, {grad}, lr, beta1, beta2, weight_decay, eps);
}
