#include "tenon/backend/paged_axis.h"

#include <algorithm>

#include "tenon/kernels/view_facts.h"

namespace tenon {

std::optional<PagedAxis> paged_axis(const Expr& view, int axis) {
  const Shape& shape = view.shape();
  if (!is_view_chain(view) || shape.rank() == kMaxRank) return std::nullopt;
  const auto pieces = affine_pieces(view, shape, shape.rank(), true);
  if (!pieces || pieces->size() != 1 || !(*pieces)[0].leaf || (*pieces)[0].look_ups.size() != 1) return std::nullopt;
  const AffinePiece& p = (*pieces)[0];
  const LookedUp& number = p.look_ups[0];
  // Elements per line; then the lines for which the number stays the same.
  int64_t line = 1;
  for (int a = axis + 1; a < shape.rank(); ++a) line *= shape[a];
  const Digit& still = number.rows.back();
  const int64_t page = still.stride == 0 ? std::min(still.extent / line, shape[axis]) : 0;
  if (page == 0 || shape[axis] % page) return std::nullopt;
  const auto at = static_cast<size_t>(axis);
  std::vector<int64_t> dims(shape.begin(), shape.end());
  dims[at] = page;
  dims.insert(dims.begin() + axis, shape[axis] / page);
  const std::optional<Coord> strides = axis_strides(p.rows, Shape(dims)),
                             numbers = axis_strides(number.rows, Shape(dims));
  if (!strides || !numbers || (*strides)[at] != 0) return std::nullopt;
  for (size_t a = at + 1; a < dims.size(); ++a)
    if ((*numbers)[a] != 0) return std::nullopt;
  return PagedAxis{p.leaf, p.offset, page, *strides, number, *numbers};
}

}  // namespace tenon
