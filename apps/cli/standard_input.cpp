#include "standard_input.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "tenon/core/atomic_file.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"

namespace tenon::cli {

std::string read_standard_input(const std::string& what, size_t most) {
  constexpr int kPatience = 100;  // milliseconds
  std::string out;
  std::array<char, 1 << 16> piece;
  for (;;) {
    check_stop();
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, kPatience) == 0) continue;
    const ssize_t n = read(STDIN_FILENO, piece.data(), piece.size());
    if (n == 0) return out;
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    TENON_CHECK(Usage, n > 0, what) << "cannot read standard input: " << system_reason(errno);
    out.append(piece.data(), static_cast<size_t>(n));
    TENON_CHECK(Usage, out.size() <= most, what)
        << "standard input has more than the " << most << " bytes that are read";
  }
}

}  // namespace tenon::cli
