// Maps that transpose.
#pragma once
#include <optional>

#include "tenon/backend/cuda/launches/kernel_call.h"

namespace tenon::cuda {

/// The kernel call of a map whose largest operands are column-major (contiguous from one row to the next) and whose
/// result is row-major: it goes through tiles in shared memory (device/launches/transposed.h). Empty for other maps.
/// `matrix`: the domain, split at its last axis.
std::optional<KernelCall> transposed_call(Device& device, const std::string& name,
                                          std::span<const ProgramOutput> outputs, const MatrixDomain& matrix);

}  // namespace tenon::cuda
