// Streaming-softmax attention and its gradients, which compute a tile of scores at a time.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {
namespace {

std::string legal_attention(const Form& form) { return form.lanes > 1 ? "attention cannot have lanes" : ""; }

std::string legal_attention_gradient(const Form& form) {
  return form.lanes > 1 ? "attention's gradient cannot have lanes" : "";
}

// q, k and v are read through holes; result rows go through the epilogue.
const RegisterSkeleton kRegisteredAttention({.name = "attention",
                                             .holes = {"q", "k", "v", "keys"},
                                             .serves = anchored_by<nodes::Attention>,
                                             .legal = legal_attention});

// The gradient of queries, or those of keys and values side by side, with that of queries as a second result.
const RegisterSkeleton kRegisteredAttentionGradient(
    {.name = "attention_gradient",
     .holes = {"q", "k", "v", "g", "lse", "delta", "keys"},
     .serves = anchored_by<nodes::AttentionQueryGradient, nodes::AttentionKeyGradient>,
     .legal = legal_attention_gradient});

}  // namespace
}  // namespace tenon
