// Matrix product plus a narrow one before the epilogue: a linear layer and its branch.
#include "tenon/kernels/plain.h"

namespace tenon {
namespace {

class BranchedGemm : public SkeletonOf<nodes::BranchedLinear> {
 public:
  BranchedGemm() : SkeletonOf("branched_gemm", {"a", "b", "branch a", "branch b", "factor 0", "factor 1"}) {}
  std::optional<std::string> legal(const Form&) const override { return std::nullopt; }
};

const RegisterSkeleton<BranchedGemm> kRegisteredBranchedGemm;

}  // namespace
}  // namespace tenon
