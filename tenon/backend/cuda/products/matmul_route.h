// A gemm launch as a library's product: which of the launch's tensors are the library's operands.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/cuda/libraries/native_epilogue.h"
#include "tenon/backend/cuda/products/tile_tuning.h"

namespace tenon::cuda {

class MatmulRoute {
 public:
  /// The product of `a` and `b` as the kernel reads them (f16 or bf16), `batch` times. Empty if the operands do not
  /// have plain strides or the library lacks the launch's epilogue.
  static std::optional<MatmulRoute> of(const Form& form, const Expr& a, const Expr& b, int64_t batch);

  const MatmulProblem& problem() const { return problem_; }
  /// NativeEpilogue::words.
  const std::string& epilogue() const { return epilogue_; }
  /// The library adds a bias of the operands' type. If the launch's bias has another type, `leaf` is the bias for the
  /// library, to be filled from `value`; otherwise both are empty.
  struct Bias {
    Expr leaf, value;
  };
  const Bias& bias() const { return bias_; }

  /// The library's call as a kernel call, after a kernel call that fills the bias if `fill_bias`. Throws
  /// Error(Internal) if the library cannot run it.
  TunedCall call(Device& device, const std::string& name, const MatmulAlgorithm& algorithm, bool fill_bias) const;

 private:
  MatmulProblem problem_;
  std::string epilogue_;
  std::vector<LibraryOperand> operands_;
  Bias bias_;
};

}  // namespace tenon::cuda
