// When a launch runs on a library of network layers: where it was measured to be faster on this device, by the version
// that is here. The library is not even loaded for anything else.
#pragma once
#include <optional>
#include <string>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/products/tile_tuning.h"

namespace tenon::cuda {

/// The value of the table where a kernel of ours was faster.
inline constexpr const char* kOwnKernel = "own";

/// What was measured for `key` (tile_table.h: "cudnn 9.19.0 engine .."), if this device's library can run it; with
/// TENON_CUDA_CORE=cudnn, else what the library holds fastest; else nothing.
std::optional<DnnPlan> choose_dnn(Device& device, const std::string& key, const DnnProblem& problem);
/// The library's call as a kernel call, named after `name` and its engine.
TunedCall dnn_call(Device& device, const std::string& name, const DnnPlan& plan,
                   const std::vector<LibraryOperand>& operands);

}  // namespace tenon::cuda
