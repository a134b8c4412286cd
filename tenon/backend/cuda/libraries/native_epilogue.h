// Epilogues that vendors' libraries have too: a residual and a bias added to a product. Read off a launch's form, so
// that a library is offered only what it does itself.
#pragma once
#include <optional>
#include <string>

#include "tenon/backend/cuda/libraries/matmul_library.h"
#include "tenon/kernels/form.h"

namespace tenon::cuda {

/// Matrices of 2-byte elements that lie in strides of whole 16 bytes, in one tensor.
struct StridedMatrices {
  Expr leaf;
  int64_t offset = 0;  ///< elements from the leaf's first
  MatrixStrides strides;
  LibraryOperand operand() const { return {leaf, offset * size_of(leaf.dtype())}; }
};
/// `view` as `batch` matrices whose rows are its last axis, or nothing if they do not lie so.
std::optional<StridedMatrices> strided_matrices(const Expr& view, int64_t batch);

/// A value of the domain's columns, the same for all rows.
struct ColumnVector {
  Expr value;                        ///< views of shape [columns]
  std::optional<LibraryOperand> at;  ///< where its elements lie side by side, if they do
};

/// stored = scale acc + residual_scale residual + bias, computed in f32 and rounded once.
struct NativeEpilogue {
  double scale = 1, residual_scale = 0;
  StridedMatrices stored;
  std::optional<StridedMatrices> residual;
  std::optional<ColumnVector> bias;
  /// What it adds, for a table's key: "plain", "bias", "residual" or "bias residual".
  std::string words() const;
};
/// Nothing if the launch stores more, or computes more on the way. `type`: of what is stored and of the residual.
std::optional<NativeEpilogue> native_epilogue(const Form& form, DType type, int64_t batch);

}  // namespace tenon::cuda
