// Progress of a run of steps on stderr: a bar on a terminal that is not dumb, a line per step elsewhere, nothing if
// quiet.
#pragma once
#include <string>

namespace tenon::cli {

/// The text cut to what fits on a line of the terminal at stderr; whole if its width is not known.
std::string fitted(std::string ascii);

class ProgressBar {
 public:
  ProgressBar(std::string what, bool quiet);
  /// Ends the bar's line if there is one.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `done` of `total` steps are finished; the last one took `seconds`.
  void step(int done, int total, double seconds);

 private:
  std::string what_;
  bool quiet_, terminal_, drawn_ = false;
  double spent_ = 0;
};

}  // namespace tenon::cli
