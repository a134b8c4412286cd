// Where the time of a run goes: every moment from the first call of begin() on belongs to one.
#pragma once
#include <map>
#include <string>

#include "tenon/core/clock.h"

namespace tenon::train {

/// One thread's. Work that a device was given counts where somebody waits for it.
class TimeSpent {
 public:
  /// Time counts for `activity` from now on, until another begins; for none if it is empty.
  void begin(const std::string& activity);
  /// Seconds by activity, up to the last call of begin().
  const std::map<std::string, double>& seconds() const { return seconds_; }
  double seconds(const std::string& activity) const;
  /// A line for each, the longest first: seconds, share of all, milliseconds of each of `steps`; then their sum.
  std::string table(int64_t steps) const;

 private:
  std::map<std::string, double> seconds_;
  std::string activity_;
  Clock::time_point begin_;
};

}  // namespace tenon::train
