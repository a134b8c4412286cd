// NVIDIA's profiling interface (CUPTI), loaded at run time: start and end times of each kernel, also inside a graph.
#pragma once
#include <memory>
#include <vector>

#include "tenon/backend/cuda/driver/libraries.h"
#include "tenon/backend/trace.h"

namespace tenon::cuda {

/// Traces every kernel, copy and fill on this process's GPUs until destroyed; one trace at a time. Throws Error(Device)
/// with the command that installs the library if it is missing, or if it fails.
std::unique_ptr<Trace> trace_kernels(const SearchSettings& settings = SearchSettings::from_environment());

}  // namespace tenon::cuda
