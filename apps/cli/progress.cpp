#include "apps/cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tenon/core/options.h"

namespace tenon::cli {

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
  constexpr int kWidth = 30;
  const int full = total > 0 ? std::clamp(done * kWidth / total, 0, kWidth) : kWidth;
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < full ? "█" : "░";
  const double left = done > 0 ? spent_ / done * (total - done) : 0;
  std::fprintf(stderr, "\r%s %s %d/%d  %.2f s/step  %.0f s left \x1b[K", what_.c_str(), bar.c_str(), done, total,
               done > 0 ? spent_ / done : 0, left);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace tenon::cli
