// How far rounding alone may move a launch's results: evaluates its body in fp64 with noise as large as each node's
// rounding errors.
#pragma once
#include "tenon/kernels/launch.h"
#include "tenon/oracle/oracle.h"

namespace tenon {

/// How many times the noise a difference may be: three samples do not find the worst case, and fast convolutions add
/// their own error.
inline constexpr double kNoiseMargin = 12;
/// The largest difference caused by noise, for each element of each output of the launch.
std::vector<std::vector<double>> rounding_noise(const Launch& launch, const Oracle::Leaves& leaves);

}  // namespace tenon
