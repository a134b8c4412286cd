// The vector maths of one instruction set as a table of functions: the building blocks of the tape interpreter.
//
// A slot holds f32 rows `ld` elements apart (0: all rows are the same one), padded to 64 bytes, so that pointwise
// functions work on whole vectors and may read and write up to round_up(cols, 16) elements of a row. Memory of leaves
// and outputs is never accessed beyond its elements.
#pragma once
#include <cstdint>

#include "tenon/backend/cpu/tile/tile_ops.h"

namespace tenon::cpu {

inline constexpr int kMaxOperands = 4;

/// dst[r][c] = function(src[0][r][c], ..). An operand whose bit is set in the function's mask has one value per row,
/// src[i][r * ld].
struct PointwiseArgs {
  float* dst;
  int64_t dst_ld;
  const float* src[kMaxOperands];
  int64_t src_ld[kMaxOperands];
  const float* params;
  int64_t rows, cols;
};
using PointwiseFn = void (*)(const PointwiseArgs&);

/// Converts between memory of any element type and f32 rows. Steps count elements of the memory's type.
struct MoveArgs {
  void* memory;  ///< a load only reads it
  int64_t row_step, col_step;
  int64_t rows, cols;
  float* slot;
  int64_t ld;
  int64_t pad;  ///< load: zeros to write after each row
};
using MoveFn = void (*)(const MoveArgs&);

/// out[r] = reduction of x[r][0..cols).
struct ReduceArgs {
  const float* x;
  int64_t ld, rows, cols;
  float* out;
};
using ReduceFn = void (*)(const ReduceArgs&);

/// A sum of products, x0 x1 +- x2 x3, or with a plain left or right operand; then the pointwise node `after` (-1:
/// none).
struct ProductSum {
  bool subtracts = false, left_product = true, right_product = true;
  int after = -1;
};

struct VecOps {
  const char* name;
  /// The functions of a pointwise node, indexed by the mask of row-uniform operands. `node`: its index in node_types().
  const PointwiseFn* (*pointwise)(int node);
  /// The functions of such a sum in one pass, indexed by mask. Every product and sum is rounded, as it would be by
  /// separate nodes. Null unless `after` is one of a few simple nodes. At least one operand is a product.
  const PointwiseFn* (*products)(const ProductSum& sum);
  /// dst = src rounded to values of a type, as round_to does.
  PointwiseFn (*round)(DType type);
  MoveFn (*load)(DType type);
  /// Rounds to nearest even; integers are truncated.
  MoveFn (*store)(DType type);
  /// The order of additions does not depend on the block: partial sums per lane, then pairs, in blocks of 4096 columns.
  ReduceFn (*reduce)(int node);
  /// dst[r][c] = src[0][r * ld]: repeats a row's number along its columns.
  PointwiseFn expand;
  /// sum[c] += d, squares[c] += d^2 with d = x[r][c] - from[c], over a few rows. Accumulates in f32 deviations from the
  /// median of three rows, then in f64 those from `from`: a sum of squares is then at most 1 + rows times that of
  /// deviations from the mean, so its rounding error stays small whatever the mean.
  void (*column_moments)(const float* x, int64_t ld, int64_t rows, int64_t cols, const float* from, double* sum,
                         double* squares);
};

/// The table for the instruction set that the tile kernels use.
const VecOps& vec_ops(Isa isa);

}  // namespace tenon::cpu
