#include "cancel.h"

#include <atomic>
#include <csignal>

#include "tenon/core/error.h"

namespace tenon::cli {
namespace {
std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  g_signal.store(number);
  std::signal(number, SIG_DFL);
}
}  // namespace

void install_signal_handlers() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

int stop_signal() { return g_signal.load(); }

bool stop_asked() { return stop_signal() != 0; }

void throw_if_stopped() {
  if (stop_asked()) throw Error(ErrorKind::Cancelled, "", "interrupted");
}

}  // namespace tenon::cli
