// When a launch runs on a neural-network library: where that was measured to be faster on this device, with the
// installed version. Otherwise the library is not even loaded.
#pragma once
#include <optional>
#include <string>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/products/tile_tuning.h"

namespace tenon::cuda {

/// The table's value if our own kernel was faster.
inline constexpr const char* kOwnKernel = "own";

/// The plan in a table's line, if this library can run it: not one of another library or version.
std::optional<DnnPlan> measured_plan(DnnLibrary& library, const std::string& line, const DnnProblem& problem);

/// The measured plan for `key` (tile_table.h: "cudnn 9.19.0 engine .."), if this device's library can run it; else,
/// with TENON_CUDA_CORE=cudnn, the plan that the library ranks fastest; else empty.
std::optional<DnnPlan> choose_dnn(Device& device, const std::string& key, const DnnProblem& problem);
/// The library's call as a kernel call, named after `name` and its engine.
TunedCall dnn_call(Device& device, const std::string& name, const DnnPlan& plan,
                   const std::vector<LibraryOperand>& operands);

}  // namespace tenon::cuda
