// An Access finds the elements of a chain of views in memory. It is compiled once from an expression over a domain; a
// run requests blocks of the domain (rows by linear index, a range of columns) and gets them as rectangles of memory.
//
// A few affine pieces (backend/affine.h) are cut into rectangles beforehand, also if an index is looked up for each
// row; more of them are iterated digit by digit. Other chains are evaluated on integers (expr/walk.h), one run of
// elements at a time.
#pragma once
#include <array>
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
  // Elements of an affine piece whose rows have one stride and whose columns have one. A cache line: between two runs
  // of a launch its weights pass through the caches, so that every line a run touches comes from memory.
  struct alignas(64) Part {
    int64_t offset = 0, row_begin = 0, row_end = 0, col_begin = 0, col_end = 0, row_step = 0, col_step = 0;
    int32_t number = -1, group = 1;
  };
  // What a row's number, found at offset + row * step of a leaf, adds to addresses: its multiple of `stride`.
  struct NumberOfRow {
    int32_t leaf = -1;
    DType type = DType::I32;
    int64_t offset = 0, step = 0, extent = 0, stride = 0;
  };
  static constexpr size_t kMaxParts = 4;

  void find_group();
  void find_parts();
  bool add_parts(const Piece& p, int64_t group);
  bool look_up_rows(const Expr& view, LeafTable& leaves);
  void resolve_part(const Part& p, Bases bases, const Block& block, RectFn fn) const;
  void resolve_piece(const Piece& p, Bases bases, const Block& block, RectFn fn, int64_t group = 1) const;
  void resolve_mapped(Bases bases, const Block& block, RectFn fn) const;
  Expr follow_down(Expr e, Walk& walk, Bases bases) const;
  int number_of(const Expr& leaf) const;

  // What runs read is first, and in place.
  DType dtype_ = DType::F32;
  bool uniform_ = false;
  int32_t size_ = 4;         // bytes of an element
  uint32_t part_count_ = 0;  // 0: not cut into parts
  int64_t group_ = 1;        // above 1: the only piece is in_order_ with the columns of each group reversed
  NumberOfRow number_of_row_;
  std::array<Part, kMaxParts> parts_;  // of in_order_ if there are groups

  Expr view_;
  Shape domain_;
  int split_ = 0;
  std::vector<Piece> pieces_;
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
