// Epilogues that vendors' libraries support too: a residual and a bias added to a product. Derived from a launch's
// form, so that a library only gets what it can do itself.
#pragma once
#include <optional>
#include <string>

#include "tenon/backend/cuda/libraries/matmul_library.h"
#include "tenon/kernels/form.h"

namespace tenon::cuda {

/// Matrices of 2-byte elements in one tensor, with strides that are multiples of 16 bytes.
struct StridedMatrices {
  Expr leaf;
  int64_t offset = 0;  ///< elements from the leaf's start
  MatrixStrides strides;
  LibraryOperand operand() const { return {leaf, offset * size_of(leaf.dtype())}; }
};
/// `view` as `batch` matrices whose columns are its last axis, or empty if it has another layout.
std::optional<StridedMatrices> strided_matrices(const Expr& view, int64_t batch);

/// A value for each column of the domain, the same for all rows.
struct ColumnVector {
  Expr value;                        ///< views of shape [columns]
  std::optional<LibraryOperand> at;  ///< where its elements are contiguous in memory, if they are
};

/// stored = scale acc + residual_scale residual + bias, computed in f32 and rounded once.
struct NativeEpilogue {
  double scale = 1, residual_scale = 0;
  StridedMatrices stored;
  std::optional<StridedMatrices> residual;
  std::optional<ColumnVector> bias;
  /// What it adds, for the key into the table: "plain", "bias", "residual" or "bias residual".
  std::string words() const;
};
/// Empty if the launch stores or computes more. `type`: of the stored result and of the residual.
std::optional<NativeEpilogue> native_epilogue(const Form& form, DType type, int64_t batch);

}  // namespace tenon::cuda
