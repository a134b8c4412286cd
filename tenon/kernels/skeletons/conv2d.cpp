// Convolution of NHWC images: x (with maths, concat and upsampling on load; padding applies after them), w, epilogue.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {
namespace {

std::string legal_conv2d(const Form& form) {
  const Shape& w = form.anchor->in[1].shape();
  const std::vector<int64_t>& p = form.anchor->attrs.ints;
  const bool product = w[2] == 1 && w[3] == 1 && p == std::vector<int64_t>{1, 0, 0, 0, 0};
  if (form.lanes > 1 && !product) return "only a 1x1 convolution can compute parts of the channels side by side";
  return {};
}

const RegisterSkeleton kRegisteredConv2d(
    {.name = "conv2d", .holes = {"x", "w"}, .serves = anchored_by<nodes::Conv2d>, .legal = legal_conv2d});

}  // namespace
}  // namespace tenon
