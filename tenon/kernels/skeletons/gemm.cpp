// Matrix product with holes: a (rows; may reduce whole rows of K), b (columns; packed once if constant), epilogue.
#include "tenon/kernels/plain.h"

namespace tenon {
namespace {

class Gemm : public SkeletonOf<nodes::Linear> {
 public:
  Gemm() : SkeletonOf("gemm", {"a", "b"}) {}
  std::optional<std::string> legal(const Form& form) const override {
    if (form.anchor->in[1].shape().rank() > 2 && form.lanes > 1) return "a batched product cannot have lanes";
    return std::nullopt;
  }
};

const RegisterSkeleton<Gemm> kRegisteredGemm;

}  // namespace
}  // namespace tenon
