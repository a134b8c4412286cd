// Streaming-softmax attention and its gradients, which compute a tile of scores at a time.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {
namespace {

// q, k and v are read through holes; result rows go through the epilogue.
const RegisterSkeleton kRegisteredAttention({
    .name = "attention",
    .holes = {"q", "k", "v", "keys"},
    .serves = anchored_by<nodes::Attention>,
    .legal = [](const Form& form) -> std::string { return form.lanes > 1 ? "attention cannot have lanes" : ""; },
});

// The gradient of queries, or those of keys and values side by side, with that of queries as a second result.
const RegisterSkeleton kRegisteredAttentionGradient({
    .name = "attention_gradient",
    .holes = {"q", "k", "v", "g", "lse", "delta", "keys"},
    .serves = anchored_by<nodes::AttentionQueryGradient, nodes::AttentionKeyGradient>,
    .legal = [](const Form& form) -> std::string {
      return form.lanes > 1 ? "attention's gradient cannot have lanes" : "";
    },
});

}  // namespace
}  // namespace tenon
