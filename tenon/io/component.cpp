#include "tenon/io/component.h"

#include "tenon/core/error.h"
#include "tenon/core/text.h"

namespace tenon {

const TensorView& Component::at(const std::string& tensor) const {
  const auto found = tensors.find(tensor);
  if (found != tensors.end()) return found->second;
  const auto foreign = unsupported.find(tensor);
  TENON_CHECK(Model, foreign == unsupported.end(), name)
      << "tensor '" << shown(tensor) << "' " << foreign->second.shape << " has the unsupported element type "
      << shown(foreign->second.dtype);
  throw Error(ErrorKind::Model, name, "there is no tensor '" + shown(tensor) + "'");
}

void Component::require_readable() const {
  if (!unsupported.empty()) at(unsupported.begin()->first);
}

std::map<std::string, Shape> Component::shapes() const {
  std::map<std::string, Shape> out;
  for (const auto& [tensor, view] : tensors) out.emplace(tensor, view.shape);
  for (const auto& [tensor, slice] : blocks) out.emplace(tensor, slice.shape);
  return out;
}

void Component::reshape(const std::map<std::string, Shape>& wanted) {
  const auto extents = [](const Shape& s) {
    std::vector<int64_t> out(s.begin(), s.end());
    std::erase(out, 1);
    return out;
  };
  for (const auto& [tensor, shape] : wanted) {
    if (const auto at = tensors.find(tensor); at != tensors.end() && extents(at->second.shape) == extents(shape))
      at->second.shape = shape;
    const auto at = blocks.find(tensor);
    const bool same = at != blocks.end() && extents(at->second.shape) == extents(shape);
    if (same && at->second.shape.cols() == shape.cols()) at->second.shape = shape;  // rows are read as stored
  }
}

int64_t Component::parameters() const {
  int64_t sum = 0;
  for (const auto& [unused, shape] : shapes()) sum += shape.numel();
  return sum;
}

int64_t Component::bytes() const {
  int64_t sum = 0;
  for (const auto& [unused, view] : tensors) sum += static_cast<int64_t>(view.size);
  for (const auto& [unused, slice] : blocks) sum += static_cast<int64_t>(slice.stored().size());
  return sum;
}

std::map<std::string, int64_t> Component::types() const {
  std::map<std::string, int64_t> out;
  for (const auto& [unused, view] : tensors) ++out[std::string(name_of(view.dtype))];
  for (const auto& [unused, slice] : blocks) ++out[std::string(name_of(slice.tensor->type))];
  return out;
}

}  // namespace tenon
