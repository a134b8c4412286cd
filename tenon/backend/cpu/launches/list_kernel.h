// A launch over lists: a tape over chunks of equal bytes, distributed over all threads.
#pragma once
#include <memory>

#include "tenon/backend/cpu/launches/launch_kernel.h"

namespace tenon::cpu {

/// Throws Error(Internal) unless the launch is a map over vectors (backend/list_form.h).
std::unique_ptr<ListKernel> make_list_kernel(std::shared_ptr<Engine> engine, const Launch& launch);

}  // namespace tenon::cpu
