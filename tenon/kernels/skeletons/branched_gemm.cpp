// Matrix product plus a narrow one before the epilogue: a linear layer and its branch.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {

const RegisterSkeleton kRegisteredBranchedGemm({.name = "branched_gemm",
                                                .holes = {"a", "b", "branch a", "branch b", "factor 0", "factor 1"},
                                                .serves = anchored_by<nodes::BranchedLinear>});

}  // namespace tenon
