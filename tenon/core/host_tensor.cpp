#include "tenon/core/host_tensor.h"

#include <limits>

#include "tenon/core/error.h"

namespace tenon {
namespace {
template <class T>
HostTensor filled(DType dtype, const Shape& shape, std::span<const T> values) {
  TENON_CHECK(Internal, static_cast<int64_t>(values.size()) == shape.numel(), "tensor")
      << "expected " << shape.numel() << " values for shape " << shape.str() << ", got " << values.size();
  HostTensor t = HostTensor::zeros(dtype, shape);
  for (size_t i = 0; i < values.size(); ++i) store_element(dtype, t.data.data(), static_cast<int64_t>(i), values[i]);
  return t;
}
}  // namespace

HostTensor HostTensor::zeros(DType dtype, const Shape& shape) {
  TENON_CHECK(Memory, shape.numel() <= std::numeric_limits<ptrdiff_t>::max() / size_of(dtype), "tensor")
      << name_of(dtype) << shape.str() << " exceeds the address space";
  return {dtype, shape, std::vector<std::byte>(static_cast<size_t>(shape.numel() * size_of(dtype)))};
}

HostTensor HostTensor::from(DType dtype, const Shape& shape, std::span<const float> values) {
  return filled(dtype, shape, values);
}

HostTensor HostTensor::from(DType dtype, const Shape& shape, std::span<const double> values) {
  return filled(dtype, shape, values);
}

std::vector<double> HostTensor::values() const {
  std::vector<double> out(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = load_element(dtype, data.data(), static_cast<int64_t>(i));
  return out;
}

}  // namespace tenon
