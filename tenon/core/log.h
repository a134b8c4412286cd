// Logging: spdlog on stderr, so that stdout carries results only.
#pragma once
#include <spdlog/spdlog.h>

#include <string_view>

namespace tenon {

/// Sends the default logger to stderr at `level` (trace, debug, info, warn, error, off); "" reads TENON_LOG_LEVEL.
/// Colours only on a terminal that is not dumb, and not if NO_COLOR is set. A message is one line of at most
/// kMessageBytes, as `shown` makes it. Throws Error(Usage) for an unknown level.
void set_up_logging(std::string_view level = {});

}  // namespace tenon
