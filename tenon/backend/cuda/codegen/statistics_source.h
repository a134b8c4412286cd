// Kernel source that computes statistics from moments (device/launches/moments.h): the reductions of a value over the
// inner axes that a launch wants.
#pragma once
#include <span>

#include "tenon/backend/cuda/codegen/params.h"

namespace tenon::cuda {

/// A reduction with reduce_of_moments, and its destination, an f32 leaf [samples, channels].
struct Statistic {
  const NodeType* kind;
  Expr place;
};

/// "DEV static void <name>(const Params& p, int64_t at, const Moments& m) {..}": stores element `at` of each statistic.
/// Adds the include lines it needs to `headers`.
std::string statistics_source(const std::string& name, std::span<const Statistic> wanted, Params& params,
                              std::string& headers);

}  // namespace tenon::cuda
