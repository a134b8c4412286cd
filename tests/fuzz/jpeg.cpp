// Any bytes as a JPEG file: either an Error(Usage) or a picture of the size it claims.
#include <cstdlib>

#include "tenon/core/error.h"
#include "tenon/io/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tenon;
  try {
    const Image image = decode_jpeg(std::as_bytes(std::span(data, size)), "fuzz");
    if (static_cast<int64_t>(image.pixels.size()) != image.width * image.height * 3) std::abort();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Usage) std::abort();
  }
  return 0;
}
