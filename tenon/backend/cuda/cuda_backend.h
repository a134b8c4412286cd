// The CUDA backend, over any device that compiles and runs its kernels.
#pragma once
#include "tenon/backend/backend.h"
#include "tenon/backend/cuda/device.h"

namespace tenon::cuda {

/// Returns what Backend::compiled gives.
using Compiled = std::function<std::vector<CompiledKernel>()>;
/// Returns what Backend::planned gives.
using Planned = std::function<PlannedCalls()>;

/// A backend whose launches run on `device`.
std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<Device> device, Compiled compiled = {},
                                           Planned planned = {});

}  // namespace tenon::cuda
