// A tensor in host memory, exchanged between the engine and tests, the oracle and model files.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "tenon/core/dtype.h"
#include "tenon/core/shape.h"

namespace tenon {

/// Row-major elements of one type; data.size() == shape.numel() * size_of(dtype). A plain value type.
struct HostTensor {
  DType dtype = DType::F32;
  Shape shape;
  std::vector<std::byte> data;

  /// A tensor of zero bytes.
  static HostTensor zeros(DType dtype, const Shape& shape);
  /// `values` rounded to `dtype` as round_to does; throws Error(Internal) unless there are shape.numel() of them.
  static HostTensor from(DType dtype, const Shape& shape, std::span<const float> values);
  static HostTensor from(DType dtype, const Shape& shape, std::span<const double> values);
  /// The elements as numbers.
  std::vector<double> values() const;
};

}  // namespace tenon
