// Runs one launch on a device of the CUDA backend, for tests.
#pragma once
#include "tenon/backend/cuda/device.h"
#include "tests/skeletons/harness.h"

namespace tenon::launches {

/// The launch's outputs, computed into poisoned memory. With `calls` it runs twice and returns the names of its calls
/// there.
Tensors run_on(const std::shared_ptr<cuda::Device>& device, const Launch& launch, const Tensors& tensors,
               std::string* calls = nullptr);

}  // namespace tenon::launches
