// The headers that kernels include, as text inside the library: NVRTC gets them from here and not from files.
#pragma once
#include <span>

namespace tenon::cuda {

struct EmbeddedHeader {
  const char* name;  ///< as in #include: "tenon/backend/cuda/device/vocabulary.h"
  const char* text;
};

/// Every header that backend.cmake embeds, in a fixed order.
std::span<const EmbeddedHeader> embedded_headers();

}  // namespace tenon::cuda
