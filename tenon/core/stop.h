// Stops running work. Code that can be asked to stop (by a signal, Python's interrupt, a server's disconnected client)
// opens a StopScope around the work; anything that may take long calls check_stop() now and then: parsing, tokenizing,
// planning, packing weights, compiling, running. No flag needs to be passed along.
#pragma once
#include <functional>
#include <string_view>

namespace tenon {

/// Called by the working thread; returning true ends the work with Error(Cancelled).
using StopCheck = std::function<bool()>;

/// During its lifetime, work of this thread asks `stop` as well as enclosing scopes. Scopes must be destroyed in
/// reverse order.
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

/// During its lifetime this thread asks no scope around it: for short work that must not be left half done.
class StopShield {
 public:
  StopShield();
  ~StopShield();
  StopShield(const StopShield&) = delete;
  StopShield& operator=(const StopShield&) = delete;

 private:
  const StopScope* outer_;
};

/// Whether a scope of this thread wants work to stop. Costs nothing without a scope.
bool stop_asked();
/// Throws Error(Cancelled) at `where` if stop_asked().
void check_stop(std::string_view where = {});

}  // namespace tenon
