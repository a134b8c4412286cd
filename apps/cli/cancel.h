// Interruption by SIGINT and SIGTERM: the first signal asks the running work to stop before its next launch, the second
// one ends the process at once.
#pragma once

namespace tenon::cli {

void install_signal_handlers();
/// The signal that asked to stop, or 0.
int stop_signal();
/// Whether a signal has come. Cheap: what runs launches asks before each (Executable::stop_when).
bool stop_asked();
/// Throws Error(Cancelled) once a signal has come.
void throw_if_stopped();

}  // namespace tenon::cli
