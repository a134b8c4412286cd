// The arithmetic of a kernel: exactly what its launch asks for.
#pragma once
#include <span>

#include "tenon/kernels/launch.h"

namespace tenon {

/// The arithmetic that the plan set for the anchor of a launch in form. Throws Error(Usage) that names the launch if it
/// states none, or one that is not in `multiplied`.
DType obeyed_arithmetic(const Launch& launch, std::span<const DType> multiplied);

}  // namespace tenon
