// An Access finds the elements of a chain of views in memory. It is compiled once from an expression over a domain; a
// run requests blocks of the domain (rows by linear index, a range of columns) and gets them as rectangles of memory.
//
// Affine pieces (backend/affine.h) are iterated digit by digit; chains that are not affine are evaluated on integers
// (expr/walk.h), one run of elements at a time.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tenon/backend/affine.h"
#include "tenon/backend/cpu/leaves.h"
#include "tenon/core/function_ref.h"
#include "tenon/expr/walk.h"

namespace tenon::cpu {

/// Part of a domain seen as a matrix: rows [row0, row0 + rows) by columns [col0, col0 + cols).
struct Block {
  int64_t row0 = 0, rows = 0, col0 = 0, cols = 0;
};

/// Elements of a block from `row`, `col` (relative to the block's corner) on, at `data` + i * row_step + j * col_step
/// (strides in elements). data == nullptr: zeros. Within each `group` of columns, starting at `col`, elements are in
/// reverse order.
struct Rect {
  const void* data;
  int64_t row_step, col_step;
  int64_t row, rows, col, cols;
  int64_t group = 1;
};
using RectFn = FunctionRef<void(const Rect&)>;

/// A piece and the number of its leaf (-1: zeros).
struct Piece : AffinePiece {
  int number = -1;
};

class Access {
 public:
  /// `view`: a chain of views on leaves, over `domain` or with extent 1 along axes where it is constant. Axes before
  /// `split` form the row number, the others the column number.
  Access(const Expr& view, const Shape& domain, int split, LeafTable& leaves);

  DType dtype() const { return dtype_; }
  /// True if every row is constant.
  bool uniform() const { return uniform_; }
  /// The piece of an affine access with a single piece, else nullptr.
  const Piece* affine() const { return pieces_.size() == 1 && pieces_[0].number >= 0 ? &pieces_[0] : nullptr; }
  /// All pieces; empty if the chain is not piecewise affine.
  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Calls `fn` for rectangles that cover `block`, each element once; columns ascend within equal rows. Throws
  /// Error(Numeric) for a gather index out of range. `groups`: allow Rect::group above 1.
  void resolve(Bases bases, const Block& block, RectFn fn, bool groups = false) const;
  /// All leaves whose memory is read.
  const std::vector<int>& leaves() const { return leaf_numbers_; }

 private:
  void find_group();
  void resolve_piece(const Piece& p, Bases bases, const Block& block, RectFn fn, int64_t group = 1) const;
  void resolve_mapped(Bases bases, const Block& block, RectFn fn) const;
  Expr follow_down(Expr e, Walk& walk, Bases bases) const;
  int number_of(const Expr& leaf) const;

  Expr view_;
  Shape domain_;
  int split_ = 0;
  DType dtype_ = DType::F32;
  int64_t size_ = 4;  // bytes of an element
  bool uniform_ = false;
  std::vector<Piece> pieces_;
  int64_t group_ = 1;  // above 1: the only piece is in_order_ with the columns of each group reversed
  Piece in_order_;
  std::vector<int> leaf_numbers_;
  std::vector<std::pair<const Node*, int>> mapped_;  // leaf numbers, for chains that are not affine
};

/// The address of a domain coordinate, with one stride per axis, if `view` is affine over the axes of its shape.
struct Strided {
  int leaf;
  int64_t offset;
  Coord stride;
};
std::optional<Strided> strided(const Expr& view, LeafTable& leaves);

/// The same if lines of one axis are looked up by page: line s is line s % page, with stride `stride[axis]`, of the
/// page whose number, 0 to pages - 1, is found at `numbers` for s / page; pages are `page_stride` elements apart.
struct StridedPages : Strided {
  Strided numbers;
  DType number_type;
  int64_t page, pages, page_stride;
};
std::optional<StridedPages> strided_pages(const Expr& view, int axis, LeafTable& leaves);

}  // namespace tenon::cpu
