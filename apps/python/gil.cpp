#include "apps/python/gil.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace tenon::python {
namespace {

std::atomic<int> needing{0};
std::atomic<bool> ended{false};
std::atomic<std::thread::id> last{};  // the thread that ends Python

void end() {
  last = std::this_thread::get_id();
  ended = true;
  const nb::gil_scoped_release released;
  for (int i = 0; needing > 0 && i < 200; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace

NeedsPython::NeedsPython() {
  ++needing;
  if (!ended || last.load() == std::this_thread::get_id()) return;
  --needing;
  for (;;) pause();
}

NeedsPython::~NeedsPython() { --needing; }

void bind_gil(nb::module_&) {
  pthread_atfork(nullptr, nullptr, [] { needing = 0; });  // those were other threads
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&end));
}

}  // namespace tenon::python
