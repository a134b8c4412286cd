// Cores by name, which TENON_CUDA_CORE may ask for. What registers a core adds its name.
#pragma once
#include <string>
#include <string_view>

namespace tenon::cuda {

enum class CoreOf { Ours, Library };

/// Adds the name of a core, if it is not there yet, for the life of the process.
void register_core_name(std::string_view name, CoreOf whose = CoreOf::Ours);

/// TENON_CUDA_CORE, or nothing. Error(Usage) if it is none of its values.
std::string asked_core();
/// True if `core` may run: not forbidden by TENON_CUDA_CORE.
bool core_allowed(std::string_view core);
/// True if TENON_CUDA_CORE asks for this library, measured or not.
bool library_asked(std::string_view library);

}  // namespace tenon::cuda
