// The gradient of attention's queries, or those of its keys and values side by side, with that of the queries as a
// second result: a tile of scores at a time.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {

const RegisterSkeleton kRegisteredAttentionGradient(
    {.name = "attention_gradient",
     .holes = {"q", "k", "v", "g", "lse", "delta", "keys"},
     .serves = anchored_by<nodes::AttentionQueryGradient, nodes::AttentionKeyGradient>,
     .legal = [](const Form& form) {
       return std::string(form.lanes > 1 ? "attention's gradient cannot have lanes" : "");
     }});

}  // namespace tenon
