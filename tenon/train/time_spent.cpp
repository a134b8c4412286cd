#include "tenon/train/time_spent.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace tenon::train {

void TimeSpent::begin(const std::string& activity) {
  const Clock::time_point now = Clock::now();
  if (!activity_.empty()) seconds_[activity_] += std::chrono::duration<double>(now - begin_).count();
  activity_ = activity;
  begin_ = now;
}

double TimeSpent::seconds(const std::string& activity) const {
  const auto found = seconds_.find(activity);
  return found == seconds_.end() ? 0 : found->second;
}

std::string TimeSpent::table(int64_t steps) const {
  std::vector<std::pair<std::string, double>> rows(seconds_.begin(), seconds_.end());
  std::ranges::stable_sort(rows, std::greater(), [](const auto& r) { return r.second; });
  double all = 0;
  for (const auto& r : rows) all += r.second;
  std::string out;
  const auto line = [&](const std::string& name, double seconds) {
    char text[160];
    std::snprintf(text, sizeof text, "%-14s %9.3f s %6.1f %% %10.2f ms a step\n", name.c_str(), seconds,
                  all > 0 ? 100 * seconds / all : 0, 1e3 * seconds / static_cast<double>(std::max<int64_t>(steps, 1)));
    out += text;
  };
  for (const auto& [name, seconds] : rows) line(name, seconds);
  line("all", all);
  return out;
}

}  // namespace tenon::train
