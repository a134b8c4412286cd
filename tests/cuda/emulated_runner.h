// Runs one launch on a device of the CUDA backend, for tests.
#pragma once
#include "tenon/backend/cuda/device.h"
#include "tests/skeletons/harness.h"

namespace tenon::launches {

/// The launch's outputs from poisoned memory. With `steps` it runs twice, and leaves there what its steps are called.
Tensors run_on(const std::shared_ptr<cuda::Device>& device, const Launch& launch, const Tensors& tensors,
               std::string* steps = nullptr);

}  // namespace tenon::launches
