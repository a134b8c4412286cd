// Interruption by SIGINT and SIGTERM. The first signal asks the work under way to stop (a StopScope around the verb
// asks stop_signal()); what has not stopped a moment later is ended where it stands, and so it is by a second signal.
#pragma once
#include <vector>

namespace tenon::cli {

/// Seconds from the first signal to the end of what does not ask whether to stop: a launch, a compiler, a slow disk.
inline constexpr double kStopPatience = 0.2;

/// A shell's exit code of a process that a signal ended is this and the signal's number.
inline constexpr int kSignalBase = 128;

/// Also has writes beyond a limit on the size of files (SIGXFSZ) fail instead of ending the process.
void install_signal_handlers();
/// The signal that asked to stop, or 0.
int stop_signal();
/// While it lives, a signal ends a turn of a conversation, or a training run behind a step, instead of the program: the
/// first one that comes is for asked(), a second one is a stop_signal().
class TurnInterrupt {
 public:
  explicit TurnInterrupt(std::vector<int> signals);
  ~TurnInterrupt();
  TurnInterrupt(const TurnInterrupt&) = delete;
  TurnInterrupt& operator=(const TurnInterrupt&) = delete;
  /// The signal that came, or 0.
  int asked() const;

 private:
  std::vector<int> signals_;
};

/// Work has stopped by itself: the process ends as its main function says.
void stopped_in_time();

}  // namespace tenon::cli
