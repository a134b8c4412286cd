// How a run spends its time: every moment from the first call of begin() is assigned to one activity.
#pragma once
#include <map>
#include <string>

#include "tenon/core/clock.h"

namespace tenon::train {

/// For one thread. Work given to a device counts where somebody waits for it.
class TimeSpent {
 public:
  /// From now on time counts for `activity`, until another begins; for none if it is empty.
  void begin(const std::string& activity);
  /// Seconds by activity, up to the last call of begin().
  const std::map<std::string, double>& seconds() const { return seconds_; }
  double seconds(const std::string& activity) const;
  /// A line for each activity, longest first: seconds, share of the total, milliseconds per step of `steps`; then the
  /// total.
  std::string table(int64_t steps) const;

 private:
  std::map<std::string, double> seconds_;
  std::string activity_;
  Clock::time_point begin_;
};

}  // namespace tenon::train
