// Streaming-softmax attention and its gradients, which compute a tile of scores at a time.
#include "tenon/kernels/plain.h"

namespace tenon {
namespace {

// q, k and v are read through holes; result rows go through the epilogue.
class Attention : public SkeletonOf<nodes::Attention> {
 public:
  Attention() : SkeletonOf("attention", {"q", "k", "v", "keys"}) {}
  std::optional<std::string> legal(const Form& form) const override {
    if (form.lanes > 1) return "attention cannot have lanes";
    return std::nullopt;
  }
};

// The gradient of queries, or those of keys and values side by side, with that of queries as a second result.
class AttentionGradient : public SkeletonOf<nodes::AttentionQueryGradient, nodes::AttentionKeyGradient> {
 public:
  AttentionGradient() : SkeletonOf("attention_gradient", {"q", "k", "v", "g", "lse", "delta", "keys"}) {}
  std::optional<std::string> legal(const Form& form) const override {
    if (form.lanes > 1) return "attention's gradient cannot have lanes";
    return std::nullopt;
  }
};

const RegisterSkeleton<Attention> kRegisteredAttention;
const RegisterSkeleton<AttentionGradient> kRegisteredAttentionGradient;

}  // namespace
}  // namespace tenon
