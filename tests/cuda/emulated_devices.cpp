// Whole plans on the emulator, as the GPUs of both architectures, and on a GPU if there is one.
#include <cstdlib>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/backend/cuda/driver/driver_device.h"
#include "tenon/core/error.h"
#include "tests/cuda/emulator.h"
#include "tests/planned/devices.h"

namespace tenon::planned {

const std::vector<Device>& devices() {
  static const std::vector<Device> all = [] {
    std::vector<Device> out;
    const auto add = [&out](const std::string& name, std::shared_ptr<cuda::Device> device) {
      out.push_back({name, cuda::make_cuda_backend(std::move(device))});
    };
    const bool gpu_only = std::getenv("TENON_TEST_GPU_ONLY") != nullptr;
    for (const std::string arch : {"sm_90a", "sm_89"})
      if (!gpu_only)
        add("emulated " + arch, std::make_shared<cuda::test::Emulator>(cuda::test::EmulatorOptions{
                                    .arch = arch, .multiprocessors = 8, .backwards = arch == "sm_90a"}));
    try {
      const auto gpu = std::make_shared<cuda::DriverDevice>();
      add(gpu->facts().name, gpu);
    } catch (const Error&) {
      if (gpu_only) throw;  // without any device every test would pass
    }
    return out;
  }();
  return all;
}

bool slow_devices() { return true; }

}  // namespace tenon::planned
