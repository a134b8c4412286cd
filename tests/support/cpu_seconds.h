// CPU time of a call, by which tests of linear time go: other tests run at the same time.
#pragma once
#include <sys/resource.h>

namespace tenon {

inline double seconds_in(const rusage& used) {
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// CPU seconds that the calling thread spends in f().
double cpu_seconds_of(const auto& f) {
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  f();
  getrusage(RUSAGE_THREAD, &after);
  return seconds_in(after) - seconds_in(before);
}

}  // namespace tenon
