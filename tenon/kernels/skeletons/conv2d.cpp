// Convolution of NHWC images: x (with maths, concat and upsampling on load; padding applies after them), w, epilogue.
#include "tenon/kernels/plain.h"

namespace tenon {
namespace {

class Conv2d : public SkeletonOf<nodes::Conv2d> {
 public:
  Conv2d() : SkeletonOf("conv2d", {"x", "w"}) {}
  std::optional<std::string> legal(const Form& form) const override {
    const Shape& w = form.anchor->in[1].shape();
    const std::vector<int64_t>& p = form.anchor->attrs.ints;
    const bool product = w[2] == 1 && w[3] == 1 && p == std::vector<int64_t>{1, 0, 0, 0, 0};
    if (form.lanes > 1 && !product) return "only a 1x1 convolution can compute parts of the channels side by side";
    return std::nullopt;
  }
};

const RegisterSkeleton<Conv2d> kRegisteredConv2d;

}  // namespace
}  // namespace tenon
