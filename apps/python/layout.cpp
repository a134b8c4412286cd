// Strided arrays as views of a leaf, so that reading an array never copies it.
#include <algorithm>
#include <array>

#include "apps/python/graph.h"

namespace tenon::python {
namespace {

constexpr uintptr_t kDeviceAlignment = 16;

// Bytes from the leaf's first element to the array's.
int64_t lead_bytes(const Array& a) {
  if (a.device.backend == "cpu") return 0;
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(a.data) % kDeviceAlignment);
}

Expr view(const char* name, const Expr& x, std::vector<int64_t> ints) {
  Attrs attrs;
  attrs.ints = std::move(ints);
  return make_node(name, std::array{x}, attrs);
}

// Reshapes and broadcasts.
Expr view_as(const char* name, const Expr& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Attrs attrs;
  attrs.dims = shape;
  return make_node(name, std::array{x}, attrs);
}

// Elements begin <= i < begin + extent of an axis.
Expr part(const Expr& x, int axis, int64_t extent, int64_t begin = 0) {
  if (begin == 0 && x.shape()[axis] == extent) return x;
  return view("slice", x, {axis, begin, begin + extent});
}

[[noreturn]] void refuse(const std::string& name, const Array& a, const char* why) {
  std::string strides;
  for (int i = 0; i < a.shape.rank(); ++i)
    strides += (i ? "," : "") + std::to_string(a.strides[static_cast<size_t>(i)]);
  throw Error(ErrorKind::Usage, name, a.str() + " with strides [" + strides + "] " + why, "pass a contiguous copy");
}

// Axes with more than one distinct element, slowest first.
std::vector<int> moving_axes(const std::string& name, const Array& a) {
  std::vector<int> axes;
  for (int i = 0; i < a.shape.rank(); ++i) {
    if (a.shape[i] > 1 && a.strides[static_cast<size_t>(i)] < 0) refuse(name, a, "has a negative stride");
    if (a.shape[i] != 1 && a.strides[static_cast<size_t>(i)] != 0) axes.push_back(i);
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [&](int x, int y) { return a.strides[static_cast<size_t>(x)] > a.strides[static_cast<size_t>(y)]; });
  return axes;
}

// Extents of the memory behind `axes`, such that an axis' stride is the product of the extents within it. The last one
// is the gap between neighbours on the fastest axis.
std::vector<int64_t> memory_extents(const std::string& name, const Array& a, const std::vector<int>& axes) {
  std::vector<int64_t> extents;
  int64_t outer = 0;
  for (const int axis : axes) {
    const int64_t stride = a.strides[static_cast<size_t>(axis)], extent = a.shape[axis];
    if (extents.empty()) {
      extents.push_back(extent);
    } else {
      if (outer % stride != 0 || outer / stride < extent) refuse(name, a, "is not a view of a dense array");
      extents.push_back(outer / stride);
    }
    outer = stride;
  }
  extents.push_back(axes.empty() ? 1 : outer);
  return extents;
}

}  // namespace

void* leaf_address(const Array& array) { return array.data - lead_bytes(array); }

Expr input_like(Graph& g, const std::string& name, const Array& a) {
  const int64_t lead = lead_bytes(a) / size_of(a.dtype);
  if (lead == 0 && a.contiguous()) return input(g, name, a.dtype, a.shape);
  const std::vector<int> axes = moving_axes(name, a);
  const std::vector<int64_t> extents = memory_extents(name, a, axes);
  const Shape memory{std::span<const int64_t>(extents)};
  Expr x = lead ? part(input(g, name, a.dtype, {lead + memory.numel()}), 0, memory.numel(), lead)
                : input(g, name, a.dtype, memory);
  x = view_as("reshape", x, memory);
  std::vector<int64_t> kept;
  for (size_t i = 0; i < axes.size(); ++i) {
    kept.push_back(a.shape[axes[i]]);
    x = part(x, static_cast<int>(i), kept.back());
  }
  x = view_as("reshape", part(x, static_cast<int>(axes.size()), 1), Shape(std::span<const int64_t>(kept)));
  std::vector<int64_t> order;  // position in `axes` of each moving axis of the array, outermost first
  Shape with_ones = a.shape;
  for (int i = 0; i < a.shape.rank(); ++i) {
    const auto it = std::find(axes.begin(), axes.end(), i);
    if (it == axes.end())
      with_ones[i] = 1;
    else
      order.push_back(it - axes.begin());
  }
  if (!std::is_sorted(order.begin(), order.end())) x = view("permute", x, order);
  return view_as("broadcast", view_as("reshape", x, with_ones), a.shape);
}

}  // namespace tenon::python
