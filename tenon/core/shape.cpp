#include "tenon/core/shape.h"

#include <algorithm>

#include "tenon/core/error.h"

namespace tenon {

Shape::Shape(std::span<const int64_t> dims) {
  TENON_CHECK(Usage, dims.size() <= kMaxRank, "shape") << "rank " << dims.size() << " exceeds " << kMaxRank;
  for (int64_t d : dims) {
    TENON_CHECK(Usage, d >= 0, "shape") << "negative extent " << d;
    dims_[rank_++] = d;
  }
}

int Shape::axis(int index, std::string_view asker) const {
  TENON_CHECK(Usage, -rank_ <= index && index < rank_, std::string(asker))
      << "axis " << index << " is outside " << str();
  return index < 0 ? index + rank_ : index;
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int64_t d : *this) {
    if (d == 0) return 0;
    TENON_CHECK(Memory, n <= (int64_t{1} << 62) / d, "shape") << str() << " has more than 2^62 elements";
    n *= d;
  }
  return n;
}

int64_t Shape::rows() const { return cols() ? numel() / cols() : 0; }

Coord Shape::strides() const {
  Coord s{};
  int64_t step = 1;
  for (int a = rank_ - 1; a >= 0; --a) {
    s[a] = step;
    step *= dims_[a];
  }
  return s;
}

Coord Shape::unravel(int64_t linear) const {
  Coord c{};
  for (int a = rank_ - 1; a >= 0; --a) {
    c[a] = linear % dims_[a];
    linear /= dims_[a];
  }
  return c;
}

int64_t Shape::ravel(const Coord& c) const {
  int64_t linear = 0;
  for (int a = 0; a < rank_; ++a) linear = linear * dims_[a] + c[a];
  return linear;
}

std::string Shape::str() const {
  std::string out = "[";
  for (int a = 0; a < rank_; ++a) {
    if (a) out += ',';
    out += std::to_string(dims_[a]);
  }
  return out + "]";
}

bool Shape::operator==(const Shape& o) const { return rank_ == o.rank_ && std::equal(begin(), end(), o.begin()); }

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::array<int64_t, kMaxRank> out{};
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a[ia], db = ib < 0 ? 1 : b[ib];
    TENON_CHECK(Usage, da == db || da == 1 || db == 1, "broadcast")
        << "shapes " << a.str() << " and " << b.str() << " do not broadcast";
    out[i] = da == 1 ? db : da;
  }
  return Shape(std::span<const int64_t>(out.data(), static_cast<size_t>(rank)));
}

}  // namespace tenon
