// Lists on the emulator: with the argument sizes of old drivers and of new ones.
#include "tenon/backend/cuda/cuda_backend.h"
#include "tests/cuda/emulator.h"
#include "tests/optim/backends.h"

namespace tenon::optim {

const std::vector<Ground>& grounds() {
  static const std::vector<Ground> all = [] {
    std::vector<Ground> out;
    for (const int bytes : {4096, cuda::kMaxArgumentBytes}) {
      cuda::test::EmulatorOptions options;
      options.argument_bytes = bytes;
      out.push_back({"emulator, arguments of " + std::to_string(bytes) + " bytes",
                     cuda::make_cuda_backend(std::make_shared<cuda::test::Emulator>(options))});
    }
    return out;
  }();
  return all;
}

}  // namespace tenon::optim
