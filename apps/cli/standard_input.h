// Reads standard input while still responding to signals.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

namespace tenon::cli {

/// Reads standard input to its end. Error(Usage) beginning with `what` for more than `most` bytes, or if it cannot be
/// read. Asks check_stop() at least ten times a second.
std::string read_standard_input(const std::string& what, size_t most);

/// Standard input by lines, without line ends.
class InputLines {
 public:
  /// `what` begins error messages.
  explicit InputLines(std::string what) : what_(std::move(what)) {}
  /// The next line, or the incomplete last one; empty at the end. As read_standard_input, with at most kMaxLine bytes.
  std::optional<std::string> next();
  static constexpr size_t kMaxLine = size_t{16} << 20;

 private:
  std::string what_, held_;
  bool ended_ = false;
};

}  // namespace tenon::cli
