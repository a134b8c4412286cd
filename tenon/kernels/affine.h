// Chains of views as addresses. Most chains are affine: every digit of the domain's coordinates (after splitting axes
// where a reshape or a 2x resize needs it) moves the address by a fixed step. Concatenation and padding along the
// leading axis of the rows or of the columns cut the domain into pieces that are affine each. All else (gather, odd
// resizes, padding of inner axes) is not affine: a backend follows NodeType::map in another algebra there.
#pragma once
#include <optional>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon {

/// One digit of a mixed-radix index and the elements that it moves an address by; below 0 where a view reverses it.
struct Digit {
  int64_t extent, step;
  bool operator==(const Digit& o) const = default;
};

/// A number that a view looks up, as one more digit of the address: what `numbers` has at an address that is affine in
/// the row number (column numbers do not move it), times `step`. Those outside 0..extent-1 name no place.
struct LookedUp {
  Expr numbers;        ///< i32 or i64 in memory
  int64_t offset = 0;  ///< elements from its first
  std::vector<Digit> rows;
  int64_t extent = 0, step = 0;
  bool operator==(const LookedUp& o) const = default;
};

/// Rows [row_begin, row_end) by columns [col_begin, col_end) of a domain, all affine in one leaf. Digits, outermost
/// first, are of the row (column) number counted from row_begin (col_begin); adjacent ones that join are joined.
struct AffinePiece {
  Expr leaf;           ///< empty: zeros
  int64_t offset = 0;  ///< elements from the leaf's first
  int64_t row_begin = 0, row_end = 0, col_begin = 0, col_end = 0;
  std::vector<Digit> rows, cols;   ///< never empty
  std::vector<LookedUp> look_ups;  ///< none unless they were asked for
  bool operator==(const AffinePiece& o) const = default;
};

/// The pieces of `view` over `domain`, which has view's shape or is what it is repeated to (missing leading axes, axes
/// of extent 1), or nothing if some part is not affine. The axes before `split` make the row number, the rest the
/// column number. Pieces are in the order of their first rows, then columns. `looked_up`: numbers may be looked up,
/// each by rows only and in one tensor.
std::optional<std::vector<AffinePiece>> affine_pieces(const Expr& view, const Shape& domain, int split,
                                                      bool looked_up = false);

/// Joined digits of a whole domain as a step for each axis, if each axis has one.
std::optional<Coord> axis_steps(std::vector<Digit> digits, const Shape& domain);

/// True if all nodes below `e` are views and leaves.
bool is_view_chain(const Expr& e);

}  // namespace tenon
