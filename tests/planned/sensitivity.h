// How far rounding alone may move a launch's results: its body evaluated in fp64 with noise of the size of each node's
// rounding errors put in.
#pragma once
#include "tenon/expr/oracle.h"
#include "tenon/kernels/launch.h"

namespace tenon::planned {

/// The largest difference that noise made to each output of the launch.
std::vector<double> rounding_noise(const Launch& launch, const Oracle::Leaves& leaves);

}  // namespace tenon::planned
