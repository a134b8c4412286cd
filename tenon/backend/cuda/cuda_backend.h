// The CUDA backend, over any device that compiles and runs its kernels.
#pragma once
#include "tenon/backend/backend.h"
#include "tenon/backend/cuda/device.h"

namespace tenon::cuda {

/// A backend whose launches run on `device`.
std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<Device> device);

}  // namespace tenon::cuda
