#include "tenon/core/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>
#include <string>

#include "tenon/core/error.h"
#include "tenon/core/options.h"
#include "tenon/core/text.h"

namespace tenon {
namespace {

// The message as `shown`: it may contain file names and configuration keys.
class ShownMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string text = shown({message.payload.data(), message.payload.size()}, kMessageBytes);
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<ShownMessage>(); }
};

}  // namespace

void set_up_logging(std::string_view level) {
  const std::string name = level.empty() ? option(Option::LogLevel) : std::string(level);
  const auto parsed = spdlog::level::from_str(name);
  TENON_CHECK(Usage, parsed != spdlog::level::off || name == "off", level.empty() ? "TENON_LOG_LEVEL" : "log level")
      << "unknown level '" << shown(name) << "'; expected trace, debug, info, warning, error, critical or off";
  const bool plain = !option(Option::NoColor).empty() || option(Option::Term) == "dumb";
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(plain ? spdlog::color_mode::never
                                                                          : spdlog::color_mode::automatic);
  auto logger = std::make_shared<spdlog::logger>("tenon", sink);
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<ShownMessage>('*').set_pattern("%^%l%$: %*");
  logger->set_formatter(std::move(formatter));
  logger->set_level(parsed);
  spdlog::set_default_logger(logger);
}

}  // namespace tenon
