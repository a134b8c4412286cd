// Matrix product with filled holes: a (rows, may reduce whole rows of K), b (columns, packed once if constant),
// epilogue.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {
namespace {

class Gemm : public Skeleton {
 public:
  std::string_view name() const override { return "gemm"; }
  std::span<const std::string_view> holes() const override {
    static constexpr std::string_view names[] = {"a", "b"};
    return names;
  }
  bool serves(const Expr& anchor) const override { return anchor && anchor.is<nodes::Linear>(); }
  std::optional<std::string> legal(const Form& form) const override {
    if (form.anchor->in[1].shape().rank() > 2 && form.lanes > 1) return "lanes of a batched product";
    return std::nullopt;
  }
};

const RegisterSkeleton<Gemm> kRegisteredGemm;

}  // namespace
}  // namespace tenon
