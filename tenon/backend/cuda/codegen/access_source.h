// Kernel source that addresses the elements of a chain of views. A kernel sees its domain as rows by columns and
// handles `width` columns at a time (a fragment); what depends only on the row is computed once per row.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tenon/backend/affine.h"
#include "tenon/backend/cuda/codegen/params.h"

namespace tenon::cuda {

/// A domain as a matrix: the axes before `split` form the row number.
struct MatrixDomain {
  Shape shape;
  int split = 0;
  int64_t rows() const;
  int64_t cols() const;
};

/// Alignment of every leaf's first element, in bytes.
inline constexpr int64_t kLeafAlignment = 16;

/// Number of elements in axes [begin, end).
int64_t product(const Shape& s, int begin, int end);
/// Source of a sum, omitting a "0".
std::string plus(const std::string& a, const std::string& b);

class AccessSource {
 public:
  /// `name`: prefix for members of the row state. `written`: the chain is a destination for stores.
  AccessSource(std::string name, const Expr& view, const MatrixDomain& domain, bool written, Params& params);

  /// True if a fragment of `width` columns never straddles two pieces.
  bool allows(int width) const;
  /// True if every row holds one value.
  bool uniform() const { return uniform_; }
  DType dtype() const { return view_.dtype(); }
  /// True if neighbouring rows read the same elements, which are then in a nearby cache.
  bool repeats() const;
  /// True if all rows read the same elements.
  bool same_in_rows() const;
  /// Number of tensors in which a fragment may lie: more than one if tensors are joined.
  int pieces() const { return std::max(1, static_cast<int>(pieces_.size())); }

  /// Members of the row state, "int a0;", and the statements that fill `r` from `row`.
  std::string row_members() const;
  std::string row_code() const;
  /// True if registers can hold fragments of `width` columns in their memory format, at half the size of floats.
  bool halves(int width) const;
  /// From now on, loads of fragments bypass L1; false if some cannot.
  bool load_past_l1(int width);
  /// From now on, load_stored only gives the addresses of its fragments, as device/launches/rows.h's Later.
  void load_later() { loader_ = "later"; }
  /// Statements that fill `dst`, a Frag<dtype(), width>; requires halves(width).
  std::string load_halves(const std::string& dst, int width) const;
  /// The same for fragments found through an index in memory, or stored in another order than their columns. `in_order`
  /// reorders them: it gives a Frag<float, width> from what load_stored put into `stored`.
  bool stored_halves(int width) const;
  std::string load_stored(const std::string& dst, int width);
  std::string in_order(const std::string& stored, int width) const;
  /// True if load_stored loads the same fragments as for `other`.
  bool same_stored(const AccessSource& other, int width) const;
  /// Statements that fill `dst` (a float if uniform, else a Frag<float, width>) at row state `r` and column `col`.
  std::string load(const std::string& dst, int width);
  /// Statements that store fragment `src` (or the float `src` for row results).
  std::string store(const std::string& src, int width);
  /// True if any `width` elements from a multiple of `width` columns on are contiguous and aligned, in rows that
  /// `operand` can describe.
  bool contiguous(int width) const;
  /// The functor of an operand that is read in place: pointers per row, then an address per column.
  std::string operand(const std::string& name, int width) const;

 private:
  struct PieceSource {
    AffinePiece piece;
    std::string pointer, offset, row_begin, row_end, col_begin, col_end;
    std::vector<std::string> row_strides, row_divisors, col_strides, col_divisors;  // by digit
  };
  void name_fields();
  std::string condition(const PieceSource& t) const;
  std::string select(const std::function<std::string(size_t piece)>& body) const;
  std::string column_offset(const PieceSource& t, const std::string& col) const;
  bool vector(const PieceSource& t, int width) const;
  std::vector<int64_t> exchanged(const PieceSource& t, int width) const;
  bool cut_by_rows() const;
  bool cut_by_columns() const;
  bool divides() const;  // some columns are not contiguous
  std::string load_vector(size_t i, int width) const;
  std::string load_piece(size_t i, const std::string& dst, int width) const;
  std::string store_piece(size_t i, const std::string& src, int width) const;
  std::string element(const PieceSource& t, const std::string& index) const;

  // Chains that are not affine: access_chains.cpp.
  std::string load_chain(const std::string& dst, int width, bool stored = false);
  bool found_side_by_side(int width) const;
  std::string store_chain(const std::string& src, int width);
  using Leaf = std::function<std::string(const Expr& leaf, const std::string& index)>;
  class Chain;
  std::string mapped(const std::string& row, const std::string& col, const std::string& outside, const Leaf& leaf);
  std::string dim(int64_t n);
  /// The member of the row state with the index that `number` holds, clamped to `extent`; the member with `_there`
  /// appended says whether it was in range.
  std::string look_up_once(const Expr& number, int64_t extent);
  std::string fresh() { return name_ + "_" + std::to_string(locals_++); }

  std::string name_;
  Expr view_;
  MatrixDomain domain_;
  bool written_ = false, uniform_ = false, affine_ = false;
  const char* loader_ = "load";  // of device/, loads a vector of elements
  Params& params_;
  std::vector<PieceSource> pieces_;
  int locals_ = 0;
  std::map<std::pair<const Node*, int64_t>, std::string> once_;
  std::string once_members_, once_code_;
};

}  // namespace tenon::cuda
