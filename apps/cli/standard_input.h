// Standard input, read so that a signal is answered while nothing comes.
#pragma once
#include <cstddef>
#include <string>

namespace tenon::cli {

/// Everything up to the end of standard input. Error(Usage) that begins with `what` for more than `most` bytes, or if
/// it cannot be read. Asks check_stop() at least ten times a second.
std::string read_standard_input(const std::string& what, size_t most);

}  // namespace tenon::cli
