// Any bytes as a safetensors file: either an Error, or views inside the bytes.
#include "tenon/io/safetensors.h"

#include <cstdlib>

#include "tenon/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tenon;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const SafetensorsFile file = SafetensorsFile::from_bytes(bytes, "fuzz");
    for (const auto& [name, view] : file.tensors()) {
      const auto expected = static_cast<size_t>(view.shape.numel() * size_of(view.dtype));
      if (view.data < bytes.data() || view.data + view.size > bytes.data() + size || view.size != expected)
        std::abort();
      for (int64_t i = 0; i < view.shape.numel(); ++i) static_cast<void>(load_element(view.dtype, view.data, i));
      if (&file.at(name) != &view) std::abort();
    }
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Model) std::abort();
  }
  return 0;
}
