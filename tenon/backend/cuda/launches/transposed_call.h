// Maps that transpose.
#pragma once
#include <optional>

#include "tenon/backend/cuda/launches/kernel_call.h"

namespace tenon::cuda {

/// The kernel call of a map whose largest operands lie row by row where its result lies column by column: through tiles
/// in shared memory (device/transposed.h). Nothing for other maps. `matrix`: the domain, by its last axis.
std::optional<KernelCall> transposed_call(Device& device, const std::string& name,
                                          std::span<const ProgramOutput> outputs, const MatrixDomain& matrix);

}  // namespace tenon::cuda
