// Shapes: up to kMaxRank extents, row-major.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace tenon {

inline constexpr int kMaxRank = 8;
using Coord = std::array<int64_t, kMaxRank>;

/// Extents of a tensor, outermost first; rank 0 is a scalar. A plain value type.
class Shape {
 public:
  Shape() = default;
  /// Throws Error(Usage) for more than kMaxRank extents or a negative one.
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  /// The axis that `index` means, where -1 is the last; throws Error(Usage) that names `asker` if there is none.
  int axis(int index, std::string_view asker) const;
  int64_t operator[](int axis) const { return dims_[axis < 0 ? axis + rank_ : axis]; }
  int64_t& operator[](int axis) { return dims_[axis < 0 ? axis + rank_ : axis]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  /// Number of elements; throws Error(Memory) if it exceeds 2^62.
  int64_t numel() const;
  /// Extent of the last axis, 1 for a scalar.
  int64_t cols() const { return rank_ ? dims_[rank_ - 1] : 1; }
  /// numel() / cols(), the number of rows (0 if cols() is 0).
  int64_t rows() const;
  /// Row-major strides in elements.
  Coord strides() const;
  /// Coordinates of a row-major linear index, and the inverse.
  Coord unravel(int64_t linear) const;
  int64_t ravel(const Coord& c) const;
  /// "[2,64,64,320]"
  std::string str() const;
  bool operator==(const Shape& o) const;

 private:
  Coord dims_{};
  int rank_ = 0;
};

/// The NumPy broadcast of two shapes; throws Error(Usage) that prints both if they are incompatible.
Shape broadcast_shapes(const Shape& a, const Shape& b);

}  // namespace tenon
