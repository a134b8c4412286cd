// What a kernel multiplies in: what its launch says, or nothing.
#pragma once
#include <span>

#include "tenon/kernels/launch.h"

namespace tenon {

/// The arithmetic of the anchor of a launch that has its form, which the plan settled. Throws Error(Usage) that names
/// the launch if it says none, or none of `multiplied`.
DType obeyed_arithmetic(const Launch& launch, std::span<const DType> multiplied);

}  // namespace tenon
