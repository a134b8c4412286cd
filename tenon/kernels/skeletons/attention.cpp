// Streaming-softmax attention, a tile of scores at a time. q, k and v are read through holes; result rows go through
// the epilogue.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {

const RegisterSkeleton kRegisteredAttention({.name = "attention",
                                             .holes = {"q", "k", "v", "keys"},
                                             .serves = anchored_by<nodes::Attention>,
                                             .legal = [](const Form& form) {
                                               return std::string(form.lanes > 1 ? "attention cannot have lanes" : "");
                                             }});

}  // namespace tenon
