#include "apps/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "tenon/core/options.h"

namespace tenon::cli {

namespace {
// Most columns of a line. The last one stays free: some terminals start a new line behind it.
size_t line_columns() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col - size_t{1} : std::numeric_limits<size_t>::max();
}
}  // namespace

std::string fitted(std::string ascii) {
  if (const size_t columns = line_columns(); ascii.size() > columns) ascii.resize(columns);
  return ascii;
}

ProgressBar::ProgressBar(std::string what, bool quiet)
    : what_(std::move(what)), quiet_(quiet), terminal_(isatty(STDERR_FILENO) && option(Option::Term) != "dumb") {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputc('\n', stderr);
}

void ProgressBar::step(int done, int total, double seconds) {
  if (quiet_) return;
  spent_ += seconds;
  if (!terminal_) {
    std::fprintf(stderr, "%s %d/%d  %.3f s\n", what_.c_str(), done, total, seconds);
    return;
  }
  const double left = done > 0 ? spent_ / done * (total - done) : 0;
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, " %d/%d  %.2f s/step  %.0f s left", done, total, done > 0 ? spent_ / done : 0,
                left);
  constexpr int kWidth = 30;
  const std::string text = what_ + numbers;
  std::string line = fitted(text);
  if (text.size() + kWidth + 1 <= line_columns()) {  // in a narrow terminal the numbers say more than a bar
    const int full = total > 0 ? std::clamp(done * kWidth / total, 0, kWidth) : kWidth;
    std::string bar = " ";
    for (int i = 0; i < kWidth; ++i) bar += i < full ? "█" : "░";
    line.insert(what_.size(), bar);
  }
  std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace tenon::cli
