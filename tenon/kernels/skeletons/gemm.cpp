// Matrix product with holes: a (rows; may reduce whole rows of K), b (columns; packed once if constant), epilogue.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {

const RegisterSkeleton kRegisteredGemm(
    {.name = "gemm", .holes = {"a", "b"}, .serves = anchored_by<nodes::Linear>, .legal = [](const Form& form) {
       const bool batched = form.anchor->in[1].shape().rank() > 2;
       return std::string(batched && form.lanes > 1 ? "a batched product cannot have lanes" : "");
     }});

}  // namespace tenon
