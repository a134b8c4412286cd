// Backends by device, created on first use and shared by the whole process.
#pragma once
#include <memory>
#include <string>
#include <tuple>

#include "tenon/backend/backend.h"

namespace tenon::python {

/// A device as named by arrays.
struct DeviceName {
  std::string backend = "cpu";  ///< "cpu", "cuda"
  int ordinal = 0;
  bool operator==(const DeviceName&) const = default;
  bool operator<(const DeviceName& o) const { return std::tie(backend, ordinal) < std::tie(o.backend, o.ordinal); }
  /// "cpu", "cuda:0"
  std::string str() const { return backend == "cuda" ? backend + ":" + std::to_string(ordinal) : backend; }
};

/// CPU threads for what is opened without a number of its own: set_num_threads, else TENON_THREADS, else 0 (all
/// processors). Error(Usage) if that variable is not a number.
int chosen_threads();
/// Opens the device if it is not open. Error(Device) if the machine has none. A forked child opens its own devices.
std::shared_ptr<Backend> open_device(const DeviceName& name);

}  // namespace tenon::python
