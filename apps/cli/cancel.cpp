#include "apps/cli/cancel.h"

#include <unistd.h>

#include <atomic>
#include <ctime>
#include <string_view>
#include <utility>

namespace tenon::cli {
namespace {

std::atomic<int> g_signal{0}, g_turn{0};
static_assert(std::atomic<int>::is_always_lock_free);
timer_t g_deadline;
bool g_has_deadline = false;

void set_deadline(double seconds) {
  if (!g_has_deadline) return;
  itimerspec when{};
  when.it_value.tv_nsec = static_cast<long>(seconds * 1e9);
  timer_settime(g_deadline, 0, &when, nullptr);
}

// A signal that our parent set to be ignored (as a shell does for background jobs) stays ignored.
bool is_ignored(int number) {
  struct sigaction now {};
  return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void on_signal(int number) {
  g_signal.store(number);
  for (const int each : kStopSignals)
    if (!is_ignored(each)) std::signal(each, SIG_DFL);
  set_deadline(kStopPatience);
}

void on_turn_interrupt(int number) {
  if (number == SIGHUP) std::signal(SIGHUP, SIG_IGN);  // a terminal that closes sends it twice
  if (g_turn.exchange(number) != 0) on_signal(number);
}

// Files under construction have no name yet, so nothing is left over.
void on_deadline(int) {
  constexpr std::string_view kMessage = "\ntenon: error: interrupted\n";
  const bool terminal = isatty(STDERR_FILENO) == 1;  // a progress bar may have to be ended
  const std::string_view text = terminal ? kMessage : kMessage.substr(1);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  _exit(kSignalBase + g_signal.load());
}

}  // namespace

void install_signal_handlers() {
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGALRM, on_deadline);
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGALRM;
  g_has_deadline = timer_create(CLOCK_MONOTONIC, &event, &g_deadline) == 0;
  for (const int each : kStopSignals)
    if (!is_ignored(each)) std::signal(each, on_signal);
}

int stop_signal() { return g_signal.load(); }

TurnInterrupt::TurnInterrupt(std::vector<int> signals) : signals_(std::move(signals)) {
  g_turn.store(0);
  for (const int each : signals_)
    if (g_signal.load() == 0 && !is_ignored(each)) std::signal(each, on_turn_interrupt);
}

TurnInterrupt::~TurnInterrupt() {
  for (const int each : signals_)
    if (g_signal.load() == 0 && !is_ignored(each)) std::signal(each, on_signal);
}

int TurnInterrupt::asked() const { return g_turn.load(); }

void stopped_in_time() { set_deadline(0); }

}  // namespace tenon::cli
