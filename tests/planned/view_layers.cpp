// Views of random programs.
#include "tests/planned/layers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::planned {

Expr Layers::joined(const Expr& x, const Expr& other) {
  const Shape& s = x.shape();
  if (s.rank() < 1) return {};
  const int axis = below(s.rank());
  Shape shape = s;
  shape[axis] = pick<int64_t>({1, 2, 8, 16});
  const Expr y = other.shape().rank() == s.rank() ? cast(other, x.dtype()) : cast(fresh(shape), x.dtype());
  Shape fits = y.shape();
  fits[axis] = s[axis];
  const Expr second = fits == s ? y : cast(fresh(shape), x.dtype());
  return chance(0.5) ? concat({x, second}, axis) : concat({second, x, second}, axis);
}

Expr Layers::slice_of(const Expr& x) {
  const int axis = below(x.shape().rank());
  const int64_t n = x.shape()[axis], begin = below(static_cast<int>(n));
  return slice(x, axis, begin, begin + 1 + below(static_cast<int>(n - begin)));
}

Expr Layers::reshaped(const Expr& x) {
  const Shape& s = x.shape();
  std::vector<int64_t> dims(s.begin(), s.end());
  const size_t axis = static_cast<size_t>(below(s.rank()));
  if (chance(0.5) && axis + 1 < dims.size()) {
    dims[axis + 1] *= dims[axis];
    dims.erase(dims.begin() + static_cast<ptrdiff_t>(axis));
  } else if (dims.size() < 5) {
    const int64_t part = head_count(dims[axis]);
    dims[axis] /= part;
    dims.insert(dims.begin() + static_cast<ptrdiff_t>(axis) + (chance(0.5) ? 1 : 0), part);
  }
  return reshape(x, Shape(dims));
}

Expr Layers::permuted(const Expr& x) {
  std::vector<int64_t> axes(static_cast<size_t>(x.shape().rank()));
  std::iota(axes.begin(), axes.end(), 0);
  std::ranges::shuffle(axes, random_);
  return permute(x, axes);
}

Expr Layers::padded(const Expr& x) {
  std::vector<int64_t> counts(static_cast<size_t>(2 * x.shape().rank()), 0);
  counts[static_cast<size_t>(below(static_cast<int>(counts.size())))] = pick<int64_t>({1, 3, 8});
  return pad(x, counts);
}

Expr Layers::rows_by_index(const Expr& x) {
  const int64_t rows = x.shape()[0];
  std::string limit = "index";
  limit += std::to_string(rows) + "_";
  if (chance(0.3)) return gather(x, scalar(g_, limit + name("s"), DType::I32, Rate::Step));
  const Shape shape = chance(0.7) ? Shape{pick<int64_t>({1, 3, 8, 17})} : Shape{2, pick<int64_t>({1, 4})};
  return gather(x, input(g_, limit + name("i"), chance(0.8) ? DType::I32 : DType::I64, shape));
}

Expr Layers::views(const Expr& x) {
  Expr y = x;
  for (int i = 1 + below(5); i > 0; --i) {
    const Expr next = view(y);
    if (next && next.shape().numel() <= elements_) y = next;
  }
  return y;
}

Expr Layers::view(const Expr& x) {
  const Shape& s = x.shape();
  if (s.rank() < 1 || s.numel() == 0) return {};
  switch (below(9)) {
    case 0:
      return slice_of(x);
    case 1:
      return reshaped(x);
    case 2:
      return permuted(x);
    case 3:
      return padded(x);
    case 4:
      return rows_by_index(x);
    case 5:
      if (s.rank() == 4) return chance(0.5) ? upsample2x(x) : resize_nearest(x, s[1] + 1, s[2] * 2 - 1);
      return s.rank() == 3 && chance(0.5) ? reshape(x, {s[0], s[1], 1, s[2]}) : reshaped(x);
    case 6:
      if (s.rank() == 4) return reshape(x, {s[0], s[1] * s[2], s[3]});
      return s.rank() == 2 ? reshape(x, {1, s[0], s[1]}) : permuted(x);
    case 7:
      if (s[-1] % 2 || chance(0.4)) return flip(x, below(s.rank()));
      return chance(0.5) ? pair_swap(x) : stored(rotated(x));
    default:
      return narrow(x);
  }
}

}  // namespace tenon::planned
