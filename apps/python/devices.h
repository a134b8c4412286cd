// Backends by device, made when they are first used and shared by everything in the process.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "tenon/backend/backend.h"

namespace tenon::python {

/// A device as arrays name it.
struct DeviceName {
  std::string backend = "cpu";  ///< "cpu", "cuda"
  int ordinal = 0;
  bool operator==(const DeviceName&) const = default;
  bool operator<(const DeviceName& o) const { return std::tie(backend, ordinal) < std::tie(o.backend, o.ordinal); }
  /// "cpu", "cuda:0"
  std::string str() const { return backend == "cuda" ? backend + ":" + std::to_string(ordinal) : backend; }
};

/// A backend serves one thread at a time: hold `busy` (never together with the GIL's being waited for) while using it.
struct Device {
  std::shared_ptr<Backend> backend;
  std::mutex busy;
};

/// The device is this thread's alone, and its work goes to the caller's stream, for as long as this lives.
class OnStream {
 public:
  OnStream(Device& device, void* stream) : busy_(device.busy), backend_(*device.backend) {
    backend_.use_stream(stream);
  }
  ~OnStream() { backend_.use_stream(nullptr); }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  std::lock_guard<std::mutex> busy_;
  Backend& backend_;
};

/// The device, opened if it is not. Error(Device) if the machine has none. A forked child gets devices of its own.
std::shared_ptr<Device> open_device(const DeviceName& name);

}  // namespace tenon::python
