#include "tenon/backend/cpu/access.h"

#include <algorithm>
#include <array>
#include <limits>

#include "tenon/backend/paged_axis.h"
#include "tenon/backend/uniform.h"
#include "tenon/core/error.h"
#include "tenon/expr/node_type.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/walk.h"
#include "tenon/kernels/view_facts.h"

namespace tenon::cpu {
namespace {

// Digits of an index after merging: two per domain axis and one more per split, with room to spare.
constexpr size_t kMaxDigits = 32;

bool too_long(const std::vector<AffinePiece>& pieces) {
  return std::any_of(pieces.begin(), pieces.end(),
                     [](const AffinePiece& p) { return p.rows.size() > kMaxDigits || p.cols.size() > kMaxDigits; });
}

// Advances a mixed-radix counter from `index`: its digits, and the sum of digit * stride.
struct Odometer {
  const std::vector<Digit>& digits;
  std::array<int64_t, kMaxDigits> at;
  int64_t offset = 0;

  Odometer(const std::vector<Digit>& d, int64_t index) : digits(d) {
    for (size_t i = d.size(); i-- > 0;) {
      at[i] = i ? index % d[i].extent : index;
      index /= d[i].extent;
      offset += at[i] * d[i].stride;
    }
  }
  // Positions left in the innermost digit.
  int64_t left() const { return digits.back().extent - at[digits.size() - 1]; }
  // Moves to the next run of the innermost digit.
  void next_run() {
    size_t i = digits.size() - 1;
    offset -= at[i] * digits[i].stride;
    at[i] = 0;
    while (i-- > 0) {
      offset += digits[i].stride;
      if (++at[i] < digits[i].extent) return;
      offset -= at[i] * digits[i].stride;
      at[i] = 0;
    }
  }
};

// Rows [0], [1] and columns [2], [3] that a part or a piece has in common with the block.
template <class T>
std::array<int64_t, 4> common(const T& p, const Block& block) {
  return {std::max(block.row0, p.row_begin), std::min(block.row0 + block.rows, p.row_end),
          std::max(block.col0, p.col_begin), std::min(block.col0 + block.cols, p.col_end)};
}

}  // namespace

Access::Access(const Expr& view, const Shape& domain, int split, LeafTable& leaves)
    : dtype_(view.dtype()),
      size_(static_cast<int32_t>(size_of(view.dtype()))),
      view_(view),
      domain_(domain),
      split_(split) {
  TENON_CHECK(Internal, is_view_chain(view), "access") << view->name() << " is not a view of memory";
  std::optional<std::vector<AffinePiece>> pieces = affine_pieces(view, domain, split);
  if (pieces && too_long(*pieces)) pieces.reset();
  uniform_ = uniform_view(view, domain, split, pieces);
  if (pieces) {
    for (AffinePiece& p : *pieces) {
      const int number = p.leaf ? leaves.add(p.leaf) : -1;
      pieces_.push_back({std::move(p), number});
      if (number >= 0) leaf_numbers_.push_back(number);
    }
    find_group();
    find_parts();
    return;
  }
  if (look_up_rows(view, leaves)) return;
  for (const Expr& e : topological(std::array{view})) {
    if (e->family() != Family::Leaf) continue;
    mapped_.emplace_back(e.get(), leaves.add(e));
    leaf_numbers_.push_back(mapped_.back().second);
  }
}

// Digits (n, g), (g, -1): with the columns of each group reversed, all columns are contiguous.
void Access::find_group() {
  if (!affine() || pieces_[0].cols.size() < 2) return;
  in_order_ = pieces_[0];
  const Digit inner = in_order_.cols.back(), outer = in_order_.cols[in_order_.cols.size() - 2];
  if (inner.stride != -1 || outer.stride != inner.extent || inner.extent > std::numeric_limits<int32_t>::max()) return;
  group_ = inner.extent;
  in_order_.offset -= group_ - 1;
  in_order_.cols.pop_back();
  in_order_.cols.back() = {outer.extent * group_, 1};
}

// Cuts the pieces into parts, unless these would be many.
void Access::find_parts() {
  const bool few = group_ > 1
                       ? add_parts(in_order_, group_)
                       : std::all_of(pieces_.begin(), pieces_.end(), [&](const Piece& p) { return add_parts(p, 1); });
  if (!few) part_count_ = 0;
}

// Adds a part for each run of the innermost digits.
bool Access::add_parts(const Piece& p, int64_t group) {
  const Digit row = p.rows.back(), col = p.cols.back();
  const int64_t down = (p.row_end - p.row_begin) / row.extent, across = (p.col_end - p.col_begin) / col.extent;
  if (static_cast<int64_t>(part_count_) + down * across > static_cast<int64_t>(kMaxParts)) return false;
  for (int64_t i = 0; i < down * across; ++i) {
    const int64_t r = i / across * row.extent, c = i % across * col.extent;
    const int64_t offset = p.offset + Odometer(p.rows, r).offset + Odometer(p.cols, c).offset;
    const int64_t row0 = p.row_begin + r, col0 = p.col_begin + c;
    parts_[part_count_++] = {offset,
                             row0,
                             row0 + row.extent,
                             col0,
                             col0 + col.extent,
                             row.stride,
                             col.stride,
                             static_cast<int32_t>(p.number),
                             static_cast<int32_t>(group)};
  }
  return true;
}

// Tries to cut a chain into parts in which each row's number is looked up.
bool Access::look_up_rows(const Expr& view, LeafTable& leaves) {
  const std::optional<std::vector<AffinePiece>> pieces = affine_pieces(view, domain_, split_, true);
  if (!pieces || pieces->size() != 1 || too_long(*pieces)) return false;
  const AffinePiece& p = pieces->front();
  if (p.look_ups.size() != 1 || p.look_ups[0].rows.size() != 1) return false;
  const LookedUp& n = p.look_ups[0];
  if (!add_parts({p, leaves.add(p.leaf)}, 1)) return false;
  number_of_row_ = {leaves.add(n.numbers), n.numbers.dtype(), n.offset, n.rows[0].stride, n.extent, n.stride};
  leaf_numbers_ = {parts_[0].number, number_of_row_.leaf};
  return true;
}

void Access::resolve(Bases bases, const Block& block, RectFn fn, bool groups) const {
  if (part_count_ && (group_ == 1 || (groups && block.col0 % group_ == 0 && block.cols % group_ == 0))) {
    for (uint32_t i = 0; i < part_count_; ++i) resolve_part(parts_[i], bases, block, fn);
    return;
  }
  if (pieces_.empty()) return resolve_mapped(bases, block, fn);
  if (groups && group_ > 1 && block.col0 % group_ == 0 && block.cols % group_ == 0)
    return resolve_piece(in_order_, bases, block, fn, group_);
  for (const Piece& p : pieces_) resolve_piece(p, bases, block, fn);
}

void Access::resolve_part(const Part& p, Bases bases, const Block& block, RectFn fn) const {
  const auto [r0, r1, c0, c1] = common(p, block);
  if (r0 >= r1 || c0 >= c1) return;
  if (p.number < 0) return fn({nullptr, 0, 0, r0 - block.row0, r1 - r0, c0 - block.col0, c1 - c0});
  const std::byte* base = static_cast<const std::byte*>(bases[p.number]);
  const int64_t first = p.offset + (r0 - p.row_begin) * p.row_step + (c0 - p.col_begin) * p.col_step;
  const NumberOfRow& n = number_of_row_;
  if (n.leaf < 0)
    return fn(
        {base + first * size_, p.row_step, p.col_step, r0 - block.row0, r1 - r0, c0 - block.col0, c1 - c0, p.group});
  for (int64_t r = r0; r < r1; ++r) {
    const auto number = static_cast<int64_t>(load_element(n.type, bases[n.leaf], n.offset + r * n.step));
    TENON_CHECK(Numeric, number >= 0 && number < n.extent, nodes::Gather::name)
        << "index " << number << " is outside 0.." << n.extent - 1;
    fn({base + (first + (r - r0) * p.row_step + number * n.stride) * size_, 0, p.col_step, r - block.row0, 1,
        c0 - block.col0, c1 - c0});
  }
}

void Access::resolve_piece(const Piece& p, Bases bases, const Block& block, RectFn fn, int64_t group) const {
  const auto [r0, r1, c0, c1] = common(p, block);
  if (r0 >= r1 || c0 >= c1) return;
  if (p.number < 0) return fn({nullptr, 0, 0, r0 - block.row0, r1 - r0, c0 - block.col0, c1 - c0});
  const std::byte* base = static_cast<const std::byte*>(bases[p.number]);
  Odometer row(p.rows, r0 - p.row_begin);
  const Odometer first(p.cols, c0 - p.col_begin);
  for (int64_t r = r0; r < r1;) {
    const int64_t rows = std::min(row.left(), r1 - r);
    Odometer col = first;
    for (int64_t c = c0; c < c1;) {
      const int64_t cols = std::min(col.left(), c1 - c);
      fn({base + (p.offset + row.offset + col.offset) * size_, p.rows.back().stride, p.cols.back().stride,
          r - block.row0, rows, c - block.col0, cols, group});
      c += cols;
      if (c < c1) col.next_run();
    }
    r += rows;
    if (r < r1) row.next_run();
  }
}

int Access::number_of(const Expr& leaf) const {
  for (const auto& [node, number] : mapped_)
    if (node == leaf.get()) return number;
  throw Error(ErrorKind::Internal, "access", "a leaf without a number");
}

// Follows a walk down to a leaf; empty for zeros.
Expr Access::follow_down(Expr e, Walk& walk, Bases bases) const {
  while (e->family() == Family::View) {
    const auto number_at = [&](int operand, const Coord& at) {
      Walk one{at, {}, 1};
      const Expr leaf = follow_down(e->in[static_cast<size_t>(operand)], one, bases);
      if (!leaf) return int64_t{0};
      const int64_t linear = leaf.shape().ravel(one.at);
      return static_cast<int64_t>(load_element(leaf.dtype(), bases[number_of(leaf)], linear));
    };
    const int operand = follow(*e, walk, number_at);
    if (operand < 0) return {};
    e = e->in[static_cast<size_t>(operand)];
  }
  return e;
}

void Access::resolve_mapped(Bases bases, const Block& block, RectFn fn) const {
  int64_t cols = 1;
  for (int a = split_; a < domain_.rank(); ++a) cols *= domain_[a];
  const int lead = domain_.rank() - view_.shape().rank(), last = domain_.rank() - 1;
  for (int64_t r = 0; r < block.rows; ++r) {
    for (int64_t c = 0; c < block.cols;) {
      const Coord d = domain_.unravel((block.row0 + r) * cols + block.col0 + c);
      Walk walk;
      for (int a = lead; a < domain_.rank(); ++a)
        walk.at[static_cast<size_t>(a - lead)] = view_.shape()[a - lead] == 1 ? 0 : d[static_cast<size_t>(a)];
      if (last >= 0) walk.run = std::min(domain_[last] - d[static_cast<size_t>(last)], block.cols - c);
      if (last >= lead && view_.shape().cols() != 1) walk.step[static_cast<size_t>(last - lead)] = 1;
      if (const Expr leaf = follow_down(view_, walk, bases)) {
        const auto* first = static_cast<const std::byte*>(bases[number_of(leaf)]);
        fn({first + leaf.shape().ravel(walk.at) * size_, 0, leaf.shape().ravel(walk.step), r, 1, c, walk.run});
      } else {
        fn({nullptr, 0, 0, r, 1, c, walk.run});
      }
      c += walk.run;
    }
  }
}

std::optional<Strided> strided(const Expr& view, LeafTable& leaves) {
  if (!is_view_chain(view)) return std::nullopt;
  const std::optional<std::vector<AffinePiece>> pieces = affine_pieces(view, view.shape(), 0);
  if (!pieces || pieces->size() != 1 || !pieces->front().leaf) return std::nullopt;
  const AffinePiece& p = pieces->front();
  const std::optional<Coord> strides = axis_strides(p.cols, view.shape());
  return strides ? std::optional<Strided>({leaves.add(p.leaf), p.offset, *strides}) : std::nullopt;
}

std::optional<StridedPages> strided_pages(const Expr& view, int axis, LeafTable& leaves) {
  const std::optional<PagedAxis> p = paged_axis(view, axis);
  if (!p) return std::nullopt;
  Coord own = p->stride;
  std::copy(own.begin() + axis + 1, own.end(), own.begin() + axis);
  return StridedPages{{leaves.add(p->leaf), p->offset, own},
                      {leaves.add(p->number.numbers), p->number.offset, p->number_stride},
                      p->number.numbers.dtype(),
                      p->page,
                      p->number.extent,
                      p->number.stride};
}

}  // namespace tenon::cpu
