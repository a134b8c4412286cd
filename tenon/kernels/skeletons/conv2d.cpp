// Convolution of NHWC images: x (with maths, concat and upsampling on load; padding applies after them), w, epilogue.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {

const RegisterSkeleton kRegisteredConv2d(
    {.name = "conv2d", .holes = {"x", "w"}, .serves = anchored_by<nodes::Conv2d>, .legal = [](const Form& form) {
       const Shape& w = form.anchor->in[1].shape();
       const bool product = w[2] == 1 && w[3] == 1 && form.anchor->attrs.ints == std::vector<int64_t>{1, 0, 0, 0, 0};
       const char* const no = "only a 1x1 convolution can compute parts of the channels side by side";
       return std::string(form.lanes > 1 && !product ? no : "");
     }});

}  // namespace tenon
