// The step on CUDA tensors: one launch for up to kMaxTensors tensors. Their addresses are passed in the kernel's
// argument, so that a captured graph is self-contained. A block processes one chunk of one tensor, 16 bytes per thread
// at a time if all three addresses are aligned for it.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "lion_tensors.h"

namespace {

constexpr int kMaxTensors = 96, kThreads = 256;
constexpr int64_t kChunk = 4096;

struct Tensors {
  void *param[kMaxTensors], *exp_avg[kMaxTensors];
  const void* grad[kMaxTensors];
  int64_t count[kMaxTensors];
  int first_chunk[kMaxTensors];
  int number;
};
static_assert(sizeof(Tensors) + sizeof(lion::Scalars) <= 4096, "what a launch could pass before CUDA 12.1");

template <class T, int N>
struct alignas(sizeof(T) * N) Fragment {
  T v[N];
};

template <class T, int N>
__device__ void step(T* param, T* exp_avg, const T* grad, const lion::Scalars& s) {
  using F = Fragment<T, N>;
  F p = *reinterpret_cast<const F*>(param), m = *reinterpret_cast<const F*>(exp_avg);
  const F g = *reinterpret_cast<const F*>(grad);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const lion::Updated u =
        lion::update(static_cast<float>(p.v[k]), static_cast<float>(m.v[k]), static_cast<float>(g.v[k]), s);
    p.v[k] = static_cast<T>(u.param);
    m.v[k] = static_cast<T>(u.exp_avg);
  }
  *reinterpret_cast<F*>(param) = p;
  *reinterpret_cast<F*>(exp_avg) = m;
}

template <class T>
__global__ void __launch_bounds__(kThreads) lion_kernel(const __grid_constant__ Tensors t,
                                                        const __grid_constant__ lion::Scalars s) {
  constexpr int kRun = 16 / sizeof(T);
  int i = 0;
  for (int high = t.number; high - i > 1;) {
    const int middle = (i + high) / 2;
    if (t.first_chunk[middle] <= static_cast<int>(blockIdx.x))
      i = middle;
    else
      high = middle;
  }
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) - t.first_chunk[i]) * kChunk;
  const int64_t left = t.count[i] - begin;
  const int count = static_cast<int>(left < kChunk ? left : kChunk);
  T* param = static_cast<T*>(t.param[i]) + begin;
  T* exp_avg = static_cast<T*>(t.exp_avg[i]) + begin;
  const T* grad = static_cast<const T*>(t.grad[i]) + begin;
  const auto address = reinterpret_cast<uintptr_t>(param) | reinterpret_cast<uintptr_t>(exp_avg) |
                       reinterpret_cast<uintptr_t>(grad);
  const int whole = address % 16 ? 0 : count / kRun;
  for (int k = threadIdx.x; k < whole; k += kThreads)
    step<T, kRun>(param + k * kRun, exp_avg + k * kRun, grad + k * kRun, s);
  for (int k = whole * kRun + threadIdx.x; k < count; k += kThreads) step<T, 1>(param + k, exp_avg + k, grad + k, s);
}

void launch(const Tensors& tensors, int chunks, at::ScalarType type, const lion::Scalars& s) {
  if (chunks == 0) return;
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  if (type == at::kFloat)
    lion_kernel<float><<<chunks, kThreads, 0, stream>>>(tensors, s);
  else if (type == at::kBFloat16)
    lion_kernel<c10::BFloat16><<<chunks, kThreads, 0, stream>>>(tensors, s);
  else
    lion_kernel<c10::Half><<<chunks, kThreads, 0, stream>>>(tensors, s);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

void lion_foreach_cuda(const std::vector<at::Tensor>& params, const std::vector<at::Tensor>& exp_avgs,
                       const std::vector<at::Tensor>& grads, double lr, double beta1, double beta2,
                       double weight_decay, double) {
  const lion::Scalars s = lion::scalars_of(lr, beta1, beta2, weight_decay);
  lion::check(params, exp_avgs, grads);
  if (params.empty()) return;
  const at::cuda::CUDAGuard guard(params[0].device());
  Tensors tensors;
  int64_t chunks = 0;
  tensors.number = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    const int64_t more = (params[i].numel() + kChunk - 1) / kChunk;
    TORCH_CHECK_VALUE(more <= INT32_MAX, "param ", i, ": too large, ", params[i].numel(), " elements");
    if (more == 0) continue;
    if (tensors.number == kMaxTensors || chunks + more > INT32_MAX) {
      launch(tensors, static_cast<int>(chunks), params[0].scalar_type(), s);
      tensors.number = 0;
      chunks = 0;
    }
    const int at = tensors.number++;
    tensors.param[at] = params[i].data_ptr();
    tensors.exp_avg[at] = exp_avgs[i].data_ptr();
    tensors.grad[at] = grads[i].const_data_ptr();
    tensors.count[at] = params[i].numel();
    tensors.first_chunk[at] = static_cast<int>(chunks);
    chunks += more;
  }
  launch(tensors, static_cast<int>(chunks), params[0].scalar_type(), s);
  lion::count_writes(params);
  lion::count_writes(exp_avgs);
}

void lion_step_cuda(at::Tensor& param, at::Tensor& exp_avg, const at::Tensor& grad, double lr, double beta1,
                    double beta2, double weight_decay, double eps) {
  lion_foreach_cuda({param}, {exp_avg}, {grad}, lr, beta1, beta2, weight_decay, eps);
}
