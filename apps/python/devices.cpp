#include "apps/python/devices.h"

#include <unistd.h>

#include <map>
#include <mutex>

#include "apps/python/gil.h"
#include "tenon/core/error.h"
#include "tenon/core/options.h"

namespace tenon::python {
namespace {

struct Devices {
  std::mutex mutex;
  std::map<DeviceName, std::shared_ptr<Backend>> open;
  int threads = 0;
  pid_t process = 0;
};

// Never destroyed: a backend's threads may run until the process ends.
Devices& devices() {
  static Devices& all = *new Devices;
  return all;
}

int threads_from_environment() {
  const std::string text = option(Option::Threads);
  if (text.empty()) return 0;
  const bool number = text.find_first_not_of("0123456789") == std::string::npos && text.size() < 6;
  TENON_CHECK(Usage, number && std::stoi(text) > 0, "TENON_THREADS")
      << "expected a positive number, got '" << text << "'";
  return std::stoi(text);
}

void set_num_threads(int threads) {
  TENON_CHECK(Usage, threads > 0, "set_num_threads") << "expected a positive number, got " << threads;
  const std::lock_guard lock(devices().mutex);
  const bool in_use = devices().process == getpid() && devices().open[{"cpu", 0}];
  TENON_CHECK(Usage, !in_use, "set_num_threads")
      << "CPU threads are already running; call it before any other function";
  devices().threads = threads;
}

}  // namespace

int chosen_threads() {
  const std::lock_guard lock(devices().mutex);
  return devices().threads > 0 ? devices().threads : threads_from_environment();
}

std::shared_ptr<Backend> open_device(const DeviceName& name) {
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  if (all.process != getpid()) {
    // The parent's threads do not exist in the child; leaks what belongs to them.
    for (auto& [known, device] : all.open) new std::shared_ptr<Backend>(std::move(device));
    all.open.clear();
    all.process = getpid();
  }
  std::shared_ptr<Backend>& device = all.open[name];
  if (device) return device;
  BackendOptions options;
  options.threads = all.threads > 0 ? all.threads : threads_from_environment();  // locked: not chosen_threads()
  options.ordinal = name.ordinal;
  return device = make_backend(name.backend, options);
}

void bind_devices(nb::module_& m) {
  m.def(
      "backend_names", &backend_names,
      "The backends of this build, such as cpu, cuda and null (which plans and computes nothing); whether a device is "
      "usable says describe_device.");
  m.def(
      "describe_device",
      [](const std::string& backend, int ordinal) {
        return open_device({backend, ordinal})->describe();
      },
      nb::arg("backend") = "cpu", nb::arg("ordinal") = 0, nb::call_guard<GilReleased>());
  m.def("set_num_threads", &set_num_threads, nb::arg("threads"));
}

}  // namespace tenon::python
