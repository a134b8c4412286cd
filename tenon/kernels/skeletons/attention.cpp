// Streaming-softmax attention: q, k, v read through their holes, result rows leave through the epilogue.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {
namespace {

class Attention : public Skeleton {
 public:
  std::string_view name() const override { return "attention"; }
  std::span<const std::string_view> holes() const override {
    static constexpr std::string_view names[] = {"q", "k", "v", "keys"};
    return names;
  }
  bool serves(const Expr& anchor) const override { return anchor && anchor.is<nodes::Attention>(); }
  std::optional<std::string> legal(const Form& form) const override {
    if (form.lanes > 1) return "lanes of attention";
    const Shape& k = form.anchor->in[1].shape();
    if (k[3] != form.anchor->in[2].shape()[3]) return "value rows of another width than key rows";
    return std::nullopt;
  }
  bool delivers(const NodeType& companion) const override { return &companion == &node_type<nodes::AttentionLse>(); }
};

const RegisterSkeleton<Attention> kRegisteredAttention;

}  // namespace
}  // namespace tenon
