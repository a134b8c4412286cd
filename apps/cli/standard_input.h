// Standard input, read so that a signal is answered while nothing comes.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

namespace tenon::cli {

/// Everything up to the end of standard input. Error(Usage) that begins with `what` for more than `most` bytes, or if
/// it cannot be read. Asks check_stop() at least ten times a second.
std::string read_standard_input(const std::string& what, size_t most);

/// Standard input line by line, without the ends of lines.
class InputLines {
 public:
  /// `what` begins the errors.
  explicit InputLines(std::string what) : what_(std::move(what)) {}
  /// The next line, or what is left at the end; nothing behind that. As read_standard_input, of kMostLine bytes.
  std::optional<std::string> next();
  static constexpr size_t kMostLine = size_t{16} << 20;

 private:
  std::string what_, held_;
  bool ended_ = false;
};

}  // namespace tenon::cli
