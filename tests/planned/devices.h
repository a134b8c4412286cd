// The devices that run whole plans in this test program: every instruction set of the machine, or a GPU's kernels on an
// emulator.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tests/support/sanitized.h"

namespace tenon::planned {

struct Device {
  std::string name;
  std::shared_ptr<Backend> backend;
};
/// The machine's best first.
const std::vector<Device>& devices();
/// Whether devices are slow: their kernels are compiled while tests run, and emulated.
bool slow_devices();

}  // namespace tenon::planned
