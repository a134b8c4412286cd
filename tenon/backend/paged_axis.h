// Views whose lines lie in pages of a pool, at page numbers read from a table: caches of keys and values.
#pragma once
#include <optional>

#include "tenon/backend/affine.h"

namespace tenon {

/// A view whose lines along one axis lie in pages, each found by a page number. Strides are given for the view's axes
/// with that axis split in two: pages, then lines within a page.
struct PagedAxis {
  Expr leaf;
  int64_t offset, page;  ///< offset in elements from the leaf's start; lines per page
  Coord stride;          ///< 0 for the page axis, whose stride is number.stride
  LookedUp number;
  Coord number_stride;  ///< of the page number's address
};
/// Empty if a part is not affine, or if the number changes within a page.
std::optional<PagedAxis> paged_axis(const Expr& view, int axis);

}  // namespace tenon
