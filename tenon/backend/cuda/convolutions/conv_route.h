// A conv2d launch handed to a library. If the library lacks the launch's epilogue, it stores products rounded to f16,
// and a pass over them computes the results. (Rounding them to bf16 would be visible in a picture.)
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/cuda/launches/kernel_call.h"
#include "tenon/backend/cuda/libraries/dnn_library.h"
#include "tenon/kernels/form.h"

namespace tenon::cuda {

struct ConvRoute {
  DnnConv problem;
  std::vector<LibraryOperand> operands;
  std::string epilogue;             ///< for the key into the table: "plain", "bias", or "pass"
  Expr products;                    ///< with a pass: the leaf between the two, which needs memory
  std::vector<ProgramOutput> pass;  ///< what the pass computes

  /// `sizes`: the whole problem except its bias; `x`, `w`: dense, as the kernel reads them. Empty for launches with
  /// statistics, which would have to read the results back, and for those with several lanes.
  static std::optional<ConvRoute> of(const Form& form, const DnnConv& sizes, const Expr& x, const Expr& w);
};

}  // namespace tenon::cuda
