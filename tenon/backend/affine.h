// Chains of views as addresses. Most chains are affine: each digit of the domain's coordinates (axes being split where
// a reshape or a 2x resize needs it) moves the address by a fixed stride. Concatenation and padding along the leading
// axis of the rows or of the columns cut the domain into pieces, each of them affine. Everything else (gather,
// unless looked-up numbers are asked for, other resizes, padding of inner axes) is not affine; backends evaluate
// NodeType::map in another algebra there.
#pragma once
#include <optional>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon {

/// One digit of a mixed-radix index and its stride in elements, negative where a view reverses it.
struct Digit {
  int64_t extent, stride;
  bool operator==(const Digit& o) const = default;
};

/// An index that a view looks up, as one more digit of the address: the value that `numbers` has at an address affine
/// in the row number (and independent of the column number), times `stride`. Values outside 0..extent-1 are out of
/// range.
struct LookedUp {
  Expr numbers;        ///< i32 or i64 in memory
  int64_t offset = 0;  ///< elements from the first one
  std::vector<Digit> rows;
  int64_t extent = 0, stride = 0;
  bool operator==(const LookedUp& o) const = default;
};

/// Rows [row_begin, row_end) by columns [col_begin, col_end) of a domain, affine in one leaf. Digits are of the row
/// (column) number counted from row_begin (col_begin), outermost first; adjacent ones are merged if one stride serves.
struct AffinePiece {
  Expr leaf;           ///< empty: zeros
  int64_t offset = 0;  ///< elements from the leaf's first one
  int64_t row_begin = 0, row_end = 0, col_begin = 0, col_end = 0;
  std::vector<Digit> rows, cols;   ///< never empty
  std::vector<LookedUp> look_ups;  ///< empty unless asked for
  bool operator==(const AffinePiece& o) const = default;
};

/// The pieces of `view` over `domain`, or nothing if some part is not affine. `domain` is view's shape or a shape it is
/// broadcast to (missing leading axes, axes of extent 1). Axes before `split` form the row number, the others the
/// column number. Pieces are ordered by their first row, then column. `looked_up` allows looked-up indices, each
/// depending on rows only and read from one tensor.
std::optional<std::vector<AffinePiece>> affine_pieces(const Expr& view, const Shape& domain, int split,
                                                      bool looked_up = false);

/// The stride of each axis, from the merged digits of a whole domain, if each axis has a single one.
std::optional<Coord> axis_strides(std::vector<Digit> digits, const Shape& domain);

}  // namespace tenon
