// Executables on the emulator.
#include "cuda/emulator.h"
#include "runtime/places.h"
#include "tenon/backend/cuda/cuda_backend.h"

namespace tenon::places {
namespace {

class CountingEmulator : public cuda::test::Emulator {
 public:
  std::unique_ptr<cuda::Recording> record(const std::function<void(Stream&)>& runs) override {
    ++recordings;
    return Emulator::record(runs);
  }
  int recordings = 0;
};

}  // namespace

std::vector<Place> places() {
  const auto device = std::make_shared<CountingEmulator>();
  return {{"emulator", cuda::make_cuda_backend(device), true, [device] { return device->recordings; }}};
}

}  // namespace tenon::places
