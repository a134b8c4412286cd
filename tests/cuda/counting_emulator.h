// An emulator that counts its recordings.
#pragma once
#include "tests/cuda/emulator.h"

namespace tenon::cuda::test {

class CountingEmulator : public Emulator {
 public:
  using Emulator::Emulator;
  std::unique_ptr<Replay> record(const std::function<void(Stream&)>& runs) override {
    ++recordings;
    return Emulator::record(runs);
  }
  int recordings = 0;
};

}  // namespace tenon::cuda::test
