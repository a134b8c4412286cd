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

int64_t Component::parameters() const {
  int64_t sum = 0;
  for (const auto& [unused, view] : tensors) sum += view.shape.numel();
  return sum;
}

int64_t Component::bytes() const {
  int64_t sum = 0;
  for (const auto& [unused, view] : tensors) sum += static_cast<int64_t>(view.size);
  return sum;
}

std::map<DType, int64_t> Component::dtypes() const {
  std::map<DType, int64_t> out;
  for (const auto& [unused, view] : tensors) ++out[view.dtype];
  return out;
}

}  // namespace tenon
