// Tracks what memory holds from what launches say they read and write. Finds a launch that would read something other
// than its plan means, without computing anything.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace tenon::null {

/// A buffer that a launch reads or writes.
struct Touched {
  std::string buffer;
  int64_t bytes = 0;
  int64_t version = -1;  ///< of a state: number of updates before it; below 0 if not a state
  const void* address = nullptr;
};

/// One run of a launch. `group` is the same for all launches of an executable; `run` counts the launch's runs.
struct TouchingRun {
  const void* group = nullptr;
  int64_t run = 0;
  std::string launch;
};

/// Calls may come from several threads.
class Contents {
 public:
  /// Announces that launches will write `t`: until one does, there is nothing to read.
  void promise(const Touched& t);
  /// Throws Error(Internal), naming the launch and the buffer, if something else was written over the buffer since, if
  /// a launch writes it but none has yet, or if a state has a different number of updates.
  void read(const Touched& t, const TouchingRun& by) const;
  void write(const Touched& t, const TouchingRun& by);
  /// The host writes this range, or the memory is freed (`all`: promises are dropped too).
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
