// Any bytes as machine code: either an Error(Device), or kernels with valid counts.
#include "tenon/backend/cuda/driver/cubin.h"

#include <cstdlib>

#include "tenon/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tenon;
  try {
    for (const cuda::CubinKernel& kernel : cuda::read_cubin(std::as_bytes(std::span(data, size)))) {
      if (kernel.registers < 0 || kernel.stack_bytes < 0 || kernel.static_shared_bytes < 0) std::abort();
      cuda::check_kernel(kernel, {}, {});
    }
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Device) std::abort();
  }
  return 0;
}
