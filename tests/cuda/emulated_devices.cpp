// Whole plans on the emulator, as the GPUs of both architectures.
#include "cuda/emulator.h"
#include "planned/devices.h"
#include "tenon/backend/cuda/cuda_backend.h"

namespace tenon::planned {

const std::vector<Device>& devices() {
  static const std::vector<Device> all = [] {
    std::vector<Device> out;
    for (const char* arch : {"sm_90a", "sm_89"})
      out.push_back({std::string("emulated ") + arch, cuda::make_cuda_backend(std::make_shared<cuda::test::Emulator>(
                                                          cuda::test::EmulatorOptions{.arch = arch}))});
    return out;
  }();
  return all;
}

bool slow_devices() { return true; }

}  // namespace tenon::planned
