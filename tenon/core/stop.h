// Stopping work that is under way. Who can be asked to stop (a signal, Python's interrupt, a server's client that left)
// opens a StopScope around the work; what may take long asks check_stop() now and then, wherever it is: parsing,
// tokenizing, planning, packing weights, compiling, running. So nothing in between passes a flag along.
#pragma once
#include <functional>
#include <string_view>

namespace tenon {

/// Asked while work is going on, by the thread that does it: true ends the work with Error(Cancelled).
using StopCheck = std::function<bool()>;

/// While it lives, work of this thread asks `stop`, besides the scopes around it. Scopes end in the reverse order of
/// their beginning.
class StopScope {
 public:
  explicit StopScope(StopCheck stop);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  friend bool stop_asked();
  StopCheck stop_;
  const StopScope* outer_;
};

/// Whether a scope of this thread says that work is to stop. Costs nothing where there is none.
bool stop_asked();
/// Throws Error(Cancelled) at `where` if stop_asked().
void check_stop(std::string_view where = {});

}  // namespace tenon
