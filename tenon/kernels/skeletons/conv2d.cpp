// Convolution on NHWC images: x (maths, concat and upsample on the way in; padding is applied behind it), w, epilogue.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {
namespace {

class Conv2d : public Skeleton {
 public:
  std::string_view name() const override { return "conv2d"; }
  std::span<const std::string_view> holes() const override {
    static constexpr std::string_view names[] = {"x", "w"};
    return names;
  }
  bool serves(const Expr& anchor) const override { return anchor && anchor.is<nodes::Conv2d>(); }
  std::optional<std::string> legal(const Form& form) const override {
    const Shape& w = form.anchor->in[1].shape();
    const std::vector<int64_t>& p = form.anchor->attrs.ints;
    const bool product = w[2] == 1 && w[3] == 1 && p == std::vector<int64_t>{1, 0, 0, 0, 0};
    if (form.lanes > 1 && !product)
      return "parts of the channels side by side, which only a 1x1 convolution can deliver";
    return std::nullopt;
  }
};

const RegisterSkeleton<Conv2d> kRegisteredConv2d;

}  // namespace
}  // namespace tenon
