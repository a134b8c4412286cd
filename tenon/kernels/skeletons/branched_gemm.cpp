// Matrix product to which a narrow one is added before the epilogue: a linear layer and its branch.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {
namespace {

class BranchedGemm : public Skeleton {
 public:
  std::string_view name() const override { return "branched_gemm"; }
  std::span<const std::string_view> holes() const override {
    static constexpr std::string_view names[] = {"a", "b", "branch a", "branch b", "factor 0", "factor 1"};
    return names;
  }
  bool serves(const Expr& anchor) const override { return anchor && anchor.is<nodes::BranchedLinear>(); }
  std::optional<std::string> legal(const Form&) const override { return std::nullopt; }
};

const RegisterSkeleton<BranchedGemm> kRegisteredBranchedGemm;

}  // namespace
}  // namespace tenon
