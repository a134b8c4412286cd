// Interruption by SIGINT, SIGTERM and SIGHUP. The first signal asks the current work to stop (a StopScope around the
// verb checks stop_signal()). If it has not stopped shortly after, or at a second signal, the process exits at once.
#pragma once
#include <array>
#include <csignal>
#include <vector>

namespace tenon::cli {

inline constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP};

/// Seconds from the first signal to the end of work that does not check for it: a launch, a compiler, a slow disk.
inline constexpr double kStopPatience = 0.2;

/// A shell's exit code for a process ended by a signal is this plus the signal's number.
inline constexpr int kSignalBase = 128;

/// Also makes writes beyond the file size limit (SIGXFSZ) fail instead of ending the process.
void install_signal_handlers();
/// The signal that asked to stop, or 0.
int stop_signal();
/// During its lifetime a signal ends a turn of a conversation, or a training run after its current step, rather than
/// the program: the first signal sets asked(), the second one stop_signal().
class TurnInterrupt {
 public:
  explicit TurnInterrupt(std::vector<int> signals);
  ~TurnInterrupt();
  TurnInterrupt(const TurnInterrupt&) = delete;
  TurnInterrupt& operator=(const TurnInterrupt&) = delete;
  /// The signal received, or 0.
  int asked() const;

 private:
  std::vector<int> signals_;
};

/// Work has stopped by itself: the process now ends through its main function.
void stopped_in_time();

}  // namespace tenon::cli
