// Draws tokens from rows of scores, in memory or computed; token and log-probability go to the epilogue.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {

const RegisterSkeleton kRegisteredSample({.name = "sample",
                                          .holes = {"scores", "rule", "seed", "counter"},
                                          .serves = anchored_by<nodes::Sample>});

}  // namespace tenon
