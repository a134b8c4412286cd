// The vector maths of one instruction set behind a table of functions: what the tape interpreter is made of.
//
// A slot is f32 rows: `ld` elements apart (0: all rows are the same one), 64-byte padded, so that pointwise bodies work
// on whole vectors and may read and write up to round_up(cols, 16) elements of a row. Memory of leaves and outputs is
// only ever touched element-exactly.
#pragma once
#include <cstdint>

#include "tenon/backend/cpu/tile/tile_ops.h"

namespace tenon::cpu {

inline constexpr int kMaxOperands = 4;

/// dst[r][c] = body(src[0][r][c], ..). An operand whose bit is set in the body's mask has one value a row: src[i][r *
/// ld].
struct PointwiseArgs {
  float* dst;
  int64_t dst_ld;
  const float* src[kMaxOperands];
  int64_t src_ld[kMaxOperands];
  const float* params;
  int64_t rows, cols;
};
using PointwiseFn = void (*)(const PointwiseArgs&);

/// Converts between memory of any element type and f32 rows. Steps are in elements of the memory's type.
struct MoveArgs {
  void* memory;  ///< load: only read
  int64_t row_step, col_step;
  int64_t rows, cols;
  float* slot;
  int64_t ld;
  int64_t pad;  ///< load: zeros to write behind each row
};
using MoveFn = void (*)(const MoveArgs&);

/// out[r] = reduction of x[r][0..cols).
struct ReduceArgs {
  const float* x;
  int64_t ld, rows, cols;
  float* out;
};
using ReduceFn = void (*)(const ReduceArgs&);

struct VecOps {
  const char* name;
  /// The bodies of a pointwise node by mask of row-uniform operands; the node's number is its place in node_types().
  const PointwiseFn* (*pointwise)(int node);
  /// Sums (differences) of products in one pass, by mask: x0 x1 +- x2 x3, or with a plain left or right operand, and
  /// then the pointwise node `after` (-1: none). Every product and sum is rounded, as by the nodes one after the other.
  /// Null for an `after` that is not among a few simple ones. At least one operand is a product.
  const PointwiseFn* (*products)(bool subtracts, bool left, bool right, int after);
  /// dst = src rounded to the values of a type, as round_to does.
  PointwiseFn (*round)(DType type);
  MoveFn (*load)(DType type);
  /// Rounds to nearest even; integers are truncated.
  MoveFn (*store)(DType type);
  /// A fixed order of additions, whatever the block: partial sums a lane, then pairs, in blocks of 4096 columns.
  ReduceFn (*reduce)(int node);
  /// dst[r][c] = src[0][r * ld]: a row value over columns.
  PointwiseFn expand;
  /// sum[c] += d, squares[c] += d^2 of d = x[r][c] - from[c] over a few rows. Added up in f32 as deviations from the
  /// first row, and only then in f64 as deviations from `from`: a sum of squares is then at most 1 + rows times that of
  /// deviations from the mean, so its rounding costs little whatever the mean is.
  void (*column_moments)(const float* x, int64_t ld, int64_t rows, int64_t cols, const float* from, double* sum,
                         double* squares);
};

/// The table for the instruction set that the tile kernels use.
const VecOps& vec_ops(Isa isa);

}  // namespace tenon::cpu
