// What memory holds, as launches say that they read and write it: finds a launch that would read something else than
// its plan means, without computing anything.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace tenon::null {

/// A buffer where a launch reads or writes it.
struct Touched {
  std::string buffer;
  int64_t bytes = 0;
  int64_t version = -1;  ///< of a state: updates before it; below 0 for what is no state
  const void* address = nullptr;
};

/// One run of a launch: `group` is the same for the launches of an executable, `run` counts the launch's.
struct TouchingRun {
  const void* group = nullptr;
  int64_t run = 0;
  std::string launch;
};

/// Calls may come from several threads.
class Contents {
 public:
  /// Launches will write `t`: until one has, there is nothing to read.
  void promise(const Touched& t);
  /// Throws Error(Internal), which names the launch and the buffer, where something else was written since the buffer
  /// was, where nothing was written that a launch writes, or where a state has another number of updates behind it.
  void read(const Touched& t, const TouchingRun& by) const;
  void write(const Touched& t, const TouchingRun& by);
  /// The host writes there, or the memory is gone (`all`: and so are the promises).
  void forget(const void* address, int64_t bytes, bool all);

 private:
  struct Part {
    uintptr_t end;
    std::string buffer;
    int64_t version;
    TouchingRun by;
  };
  void cut(uintptr_t begin, uintptr_t end);

  mutable std::mutex mutex_;
  std::map<uintptr_t, Part> parts_;  // by first byte, disjoint
  std::set<std::pair<uintptr_t, std::string>> promised_;
};

}  // namespace tenon::null
