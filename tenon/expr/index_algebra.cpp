#include "tenon/expr/index_algebra.h"

#include <algorithm>

namespace tenon {

Index IndexAlgebra::ravel(const Indices& c, const Shape& shape) {
  Index i = number(0);
  for (int a = 0; a < shape.rank(); ++a)
    if (shape[a] != 1) i = sum(times(i, shape[a]), c[static_cast<size_t>(a)]);
  return i;
}

Indices IndexAlgebra::unravel(Index i, const Shape& shape) {
  Indices c;
  c.fill(number(0));
  int first = 0;
  while (first < shape.rank() && shape[first] == 1) ++first;
  for (int a = shape.rank(); --a > first;) {
    if (shape[a] == 1) continue;
    const Divided d = divided(i, shape[a]);
    c[static_cast<size_t>(a)] = d.remainder;
    i = d.quotient;
  }
  if (first < shape.rank()) c[static_cast<size_t>(first)] = i;
  return c;
}

int64_t nearest_source(int64_t i, int64_t from, int64_t to) {
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  return std::min(static_cast<int64_t>(static_cast<float>(i) * scale), from - 1);
}

}  // namespace tenon
