#include "tenon/core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>
#include <string>

#include "tenon/core/error.h"
#include "tenon/core/options.h"

namespace tenon {

void set_up_logging(std::string_view level) {
  const std::string name = level.empty() ? option(Option::LogLevel) : std::string(level);
  const auto parsed = spdlog::level::from_str(name);
  TENON_CHECK(Usage, parsed != spdlog::level::off || name == "off", "log level")
      << "unknown level '" << name << "'; expected trace, debug, info, warning, error, critical or off";
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(
      option(Option::NoColor).empty() ? spdlog::color_mode::automatic : spdlog::color_mode::never);
  auto logger = std::make_shared<spdlog::logger>("tenon", sink);
  logger->set_pattern("%^%l%$: %v");
  logger->set_level(parsed);
  spdlog::set_default_logger(logger);
}

}  // namespace tenon
