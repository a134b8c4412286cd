// Files embedded as text in the library: the headers that kernels include, for NVRTC, and measured tiles.
#pragma once
#include <span>

#include "tenon/core/embedded_text.h"

namespace tenon::cuda {

/// Every header that backend.cmake embeds, in a fixed order, named as in #include:
/// "tenon/backend/cuda/device/vocabulary.h".
std::span<const EmbeddedText> embedded_headers();
/// The tables in products/tiles, named after their architectures.
std::span<const EmbeddedText> embedded_tiles();

}  // namespace tenon::cuda
