// NVIDIA's profiling interface (CUPTI), loaded at run time: when each kernel began and ended, also inside a graph.
#pragma once
#include <memory>
#include <vector>

#include "tenon/backend/cuda/driver/libraries.h"
#include "tenon/backend/trace.h"

namespace tenon::cuda {

/// Notes every kernel, copy and fill of this process's GPUs from now on, until it is destroyed; one at a time. Error
/// (Device) with the command that installs the library where there is none, or where it refuses.
std::unique_ptr<Trace> trace_kernels(const SearchSettings& settings = SearchSettings::from_environment());

}  // namespace tenon::cuda
