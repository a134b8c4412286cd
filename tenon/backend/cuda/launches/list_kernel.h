// A launch over lists: one kernel whose argument holds the list. See device/launches/list.h.
#pragma once
#include <memory>

#include "tenon/backend/backend.h"
#include "tenon/backend/cuda/device.h"
#include "tenon/backend/kernel.h"
#include "tenon/kernels/launch.h"

namespace tenon::cuda {

/// Starts compilation. Throws Error(Internal) for a launch that is more than a map over vectors (backend/list_form.h).
std::unique_ptr<ListKernel> make_list_kernel(std::shared_ptr<Device> device, const Launch& launch);

}  // namespace tenon::cuda
