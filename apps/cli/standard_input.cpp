#include "apps/cli/standard_input.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tenon/core/atomic_file.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"

namespace tenon::cli {

namespace {

// Appends the available bytes to `out`; false at the end. Asks check_stop() while waiting.
bool read_some(const std::string& what, size_t most, std::string& out) {
  constexpr int kPatience = 100;  // milliseconds
  std::array<char, 1 << 16> chunk;
  for (;;) {
    check_stop();
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, kPatience) == 0) continue;
    const ssize_t n = read(STDIN_FILENO, chunk.data(), chunk.size());
    if (n == 0) return false;
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    TENON_CHECK(Usage, n > 0, what) << "cannot read standard input: " << system_reason(errno);
    out.append(chunk.data(), static_cast<size_t>(n));
    TENON_CHECK(Usage, out.size() <= most, what)
        << "standard input has more than " << most << " bytes, the most that are read";
    return true;
  }
}

}  // namespace

std::string read_standard_input(const std::string& what, size_t most) {
  std::string out;
  while (read_some(what, most, out)) {
  }
  return out;
}

std::optional<std::string> InputLines::next() {
  size_t end = 0;
  while ((end = held_.find('\n', end)) == std::string::npos && !ended_) {
    end = held_.size();
    ended_ = !read_some(what_, kMaxLine, held_);
  }
  if (ended_ && held_.empty()) return {};
  end = std::min(held_.find('\n'), held_.size());
  std::string line = held_.substr(0, end);
  held_.erase(0, end + 1);
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace tenon::cli
