// How far rounding alone may move a launch's results: its body evaluated in fp64 with noise of the size of each node's
// rounding errors put in.
#pragma once
#include "tenon/expr/oracle.h"
#include "tenon/kernels/launch.h"

namespace tenon {

/// How many times the noise a difference may be: three samples do not find the worst, and fast convolutions add their
/// own.
inline constexpr double kNoiseMargin = 12;
/// The largest difference that noise made to each element of each output of the launch.
std::vector<std::vector<double>> rounding_noise(const Launch& launch, const Oracle::Leaves& leaves);

}  // namespace tenon
