// The gradients of attention, a tile of scores at a time: of queries, or of keys and values side by side.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {
namespace {

class AttentionGradient : public Skeleton {
 public:
  std::string_view name() const override { return "attention_gradient"; }
  std::span<const std::string_view> holes() const override {
    static constexpr std::string_view names[] = {"q", "k", "v", "g", "lse", "delta", "keys"};
    return names;
  }
  bool serves(const Expr& anchor) const override { return anchor && is_attention_gradient(anchor); }
  std::optional<std::string> legal(const Form& form) const override {
    if (form.lanes > 1) return "lanes of attention's gradient";
    return std::nullopt;
  }
};

const RegisterSkeleton<AttentionGradient> kRegisteredAttentionGradient;

}  // namespace
}  // namespace tenon
