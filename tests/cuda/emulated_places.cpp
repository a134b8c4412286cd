// Executables on the emulator.
#include "tenon/backend/cuda/cuda_backend.h"
#include "tests/cuda/counting_emulator.h"
#include "tests/runtime/places.h"

namespace tenon::places {
std::vector<Place> places() {
  const auto device = std::make_shared<cuda::test::CountingEmulator>();
  return {{"emulator", cuda::make_cuda_backend(device), true, [device] { return device->recordings; }}};
}

}  // namespace tenon::places
