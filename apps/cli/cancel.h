// Interruption by SIGINT and SIGTERM: the first signal asks the running work to stop at its next step, the second one
// ends the process at once.
#pragma once

namespace tenon::cli {

void install_signal_handlers();
/// The signal that asked to stop, or 0. Cheap: polled between steps.
int stop_signal();
/// Throws Error(Cancelled) once a signal has come.
void throw_if_stopped();

}  // namespace tenon::cli
