// Operator schemas, which declare what is written, and the backends that implement them.
#include "torch_binding.h"

#include <torch/library.h>

#include "registration.h"

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "lion_step(Tensor(a!) param, Tensor(b!) exp_avg, Tensor grad, float lr, float beta1, float beta2, "
      "float weight_decay, float eps) -> ()");
  ops.def(
      "lion_foreach(Tensor(a!)[] params, Tensor(b!)[] exp_avgs, Tensor[] grads, float lr, float beta1, float beta2, "
      "float weight_decay, float eps) -> ()");
#if defined(CPU_KERNEL)
  ops.impl("lion_step", c10::kCPU, &lion_step_cpu);
  ops.impl("lion_foreach", c10::kCPU, &lion_foreach_cpu);
#elif defined(CUDA_KERNEL)
  ops.impl("lion_step", c10::kCUDA, &lion_step_cuda);
  ops.impl("lion_foreach", c10::kCUDA, &lion_foreach_cuda);
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
