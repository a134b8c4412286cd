// Views whose lines lie in pages of a pool, at numbers that a table has: caches of keys and values.
#pragma once
#include <optional>

#include "tenon/kernels/affine.h"

namespace tenon {

/// A view whose lines along one axis are found by a number for each page of them. Steps are of its axes with that axis
/// as two: pages, then the lines of one.
struct PagedAxis {
  Expr leaf;
  int64_t offset, page;  ///< elements from the leaf's first; lines of a page
  Coord step;            ///< 0 for pages: number.step is theirs
  LookedUp number;
  Coord number_step;  ///< of the number's address
};
/// Nothing if some part is not affine, or numbers change within a page.
std::optional<PagedAxis> paged_axis(const Expr& view, int axis);

}  // namespace tenon
