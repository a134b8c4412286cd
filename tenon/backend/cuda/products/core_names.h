// Names of cores, which TENON_CUDA_CORE may select. Registering a core adds its name.
#pragma once
#include <string>
#include <string_view>

namespace tenon::cuda {

struct DeviceFacts;

enum class CoreOf { Ours, Library };

/// Adds a core's name, if not present, for the life of the process.
void register_core_name(std::string_view name, CoreOf whose = CoreOf::Ours);

/// TENON_CUDA_CORE, or empty. Throws Error(Usage) for an invalid value.
std::string asked_core();
/// True if TENON_CUDA_CORE does not exclude `core`.
bool core_allowed(std::string_view core);
/// True if the GPU has wgmma and its core is allowed.
bool wgmma_allowed(const DeviceFacts& facts);
/// True if TENON_CUDA_CORE selects this library, whether measured or not.
bool library_asked(std::string_view library);

}  // namespace tenon::cuda
