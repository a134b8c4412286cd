// Where the time of a run goes: every moment between the first phase and now belongs to one.
#pragma once
#include <map>
#include <string>

#include "tenon/core/clock.h"

namespace tenon::train {

/// One thread's. Work that a device was given counts where somebody waits for it.
class PhaseTimes {
 public:
  /// Time counts for `phase` from now on, until another begins; for none if it is empty.
  void enter(const std::string& phase);
  /// Seconds by phase, up to the last call of enter().
  const std::map<std::string, double>& seconds() const { return seconds_; }
  double seconds(const std::string& phase) const;
  /// A line for each phase, the longest first: seconds, share of all, milliseconds of each of `steps`; then their sum.
  std::string table(int64_t steps) const;

 private:
  std::map<std::string, double> seconds_;
  std::string phase_;
  Clock::time_point begin_;
};

}  // namespace tenon::train
