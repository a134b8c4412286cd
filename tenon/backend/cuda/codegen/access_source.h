// Text that finds the elements of a chain of views in a kernel. A kernel sees its domain as rows by columns and handles
// `run` columns at a time (a fragment); what depends on the row alone is computed once a row.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tenon/backend/cuda/codegen/params.h"
#include "tenon/kernels/affine.h"

namespace tenon::cuda {

/// A domain seen as a matrix: the axes before `split` make the row number.
struct MatrixDomain {
  Shape shape;
  int split = 0;
  int64_t rows() const;
  int64_t cols() const;
};

/// Bytes that the address of every leaf's first element is a multiple of.
inline constexpr int64_t kLeafAlignment = 16;

/// Elements of axes [begin, end).
int64_t product(const Shape& s, int begin, int end);
/// Text of a sum, without a "0".
std::string plus(const std::string& a, const std::string& b);

class AccessSource {
 public:
  /// `name`: prefix of what stands in the row's state. `written`: the chain is a place to store to.
  AccessSource(std::string name, const Expr& view, const MatrixDomain& domain, bool written, Params& params);

  /// True if a fragment of `run` columns never straddles two pieces.
  bool allows(int run) const;
  /// True if every row holds one value.
  bool uniform() const { return uniform_; }
  DType dtype() const { return view_.dtype(); }
  /// True if a row reads what its neighbour does: a cache near by has it.
  bool repeats() const;
  /// True if all rows read the same.
  bool same_in_rows() const;
  /// Tensors that a fragment may lie in: more than one where some are joined.
  int pieces() const { return std::max(1, static_cast<int>(pieces_.size())); }

  /// Members of the row's state, "int a0;", and the statements that fill `r` from `row`.
  std::string row_members() const;
  std::string row_code() const;
  /// True if fragments of `run` columns can wait in registers as they lie in memory, in half the place of floats.
  bool halves(int run) const;
  /// From now on fragments are loaded past the first-level cache; false if some would not be.
  bool load_past_l1(int run);
  /// From now on load_stored says only where its fragments come from, as device/rows.h's Later.
  void load_later() { loader_ = "later"; }
  /// Statements that fill `dst`, a Frag<dtype(), run>, where halves(run).
  std::string load_halves(const std::string& dst, int run) const;
  /// The same of fragments that are found by a number in memory or lie in another order than their columns, which
  /// `in_order` brings them to: a Frag<float, run> of what load_stored left in `stored`.
  bool stored_halves(int run) const;
  std::string load_stored(const std::string& dst, int run);
  std::string in_order(const std::string& stored, int run) const;
  /// True if load_stored loads the same fragments as it does for `other`.
  bool same_stored(const AccessSource& other, int run) const;
  /// Statements that fill `dst` (a float where uniform, else Frag<float, run>) at row state `r` and column `col`.
  std::string load(const std::string& dst, int run);
  /// Statements that store fragment `src` (or float `src` for row results).
  std::string store(const std::string& src, int run);
  /// True if any `run` elements from a column that is a multiple of it lie side by side and aligned, in rows that
  /// `operand` can describe.
  bool contiguous(int run) const;
  /// The functor of an operand that is read in place: per row pointers, then an address for each column.
  std::string operand(const std::string& name, int run) const;

 private:
  struct PieceSource {
    AffinePiece piece;
    std::string pointer, offset, row_begin, row_end, col_begin, col_end;
    std::vector<std::string> row_steps, row_divisors, col_steps, col_divisors;  // by digit
  };
  void name_fields();
  std::string condition(const PieceSource& t) const;
  std::string select(const std::function<std::string(size_t piece)>& body) const;
  std::string column_offset(const PieceSource& t, const std::string& col) const;
  bool vector(const PieceSource& t, int run) const;
  std::vector<int64_t> exchanged(const PieceSource& t, int run) const;
  bool cut_by_rows() const;
  bool cut_by_columns() const;
  bool divides() const;  // some columns are not side by side
  std::string load_vector(size_t i, int run) const;
  std::string load_piece(size_t i, const std::string& dst, int run) const;
  std::string store_piece(size_t i, const std::string& src, int run) const;
  std::string element(const PieceSource& t, const std::string& index) const;

  // Chains that are not affine: access_chains.cpp.
  std::string load_chain(const std::string& dst, int run, bool stored = false);
  bool found_side_by_side(int run) const;
  std::string store_chain(const std::string& src, int run);
  using Leaf = std::function<std::string(const Expr& leaf, const std::string& index)>;
  class Chain;
  std::string mapped(const std::string& row, const std::string& col, const std::string& outside, const Leaf& leaf);
  std::string dim(int64_t n);
  /// The member of the row's state that holds what `number` names of `extent` places, or the nearest; `_there` behind
  /// it says which.
  std::string look_up_once(const Expr& number, int64_t extent);
  std::string fresh() { return name_ + "_" + std::to_string(locals_++); }

  std::string name_;
  Expr view_;
  MatrixDomain domain_;
  bool written_ = false, uniform_ = false, affine_ = false;
  const char* loader_ = "load";  // of device/, a vector of elements
  Params& params_;
  std::vector<PieceSource> pieces_;
  int locals_ = 0;
  std::map<std::pair<const Node*, int64_t>, std::string> once_;
  std::string once_members_, once_code_;
};

}  // namespace tenon::cuda
