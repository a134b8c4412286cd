// A launch of conv2d as a library's convolution. Where the library has no such epilogue it leaves products rounded to
// f16, and a pass over them computes the launch's results. (Rounded to bf16 they would show in a picture.)
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
  std::string epilogue;             ///< for a table's key: "plain", "bias", or "pass"
  Expr products;                    ///< with a pass: the leaf between the two, wants memory
  std::vector<ProgramOutput> pass;  ///< what it computes

  /// `sizes`: all of the problem but its bias; `x`, `w`: dense, as the kernel reads them. Nothing for launches that
  /// count statistics, which would have to be read back, and of several lanes.
  static std::optional<ConvRoute> of(const Form& form, const DnnConv& sizes, const Expr& x, const Expr& w);
};

}  // namespace tenon::cuda
