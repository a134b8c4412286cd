// The frame of the command line: parses flags, runs a verb, and is the only place where errors become exit codes.
#include <fcntl.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <span>

#include "apps/cli/cancel.h"
#include "apps/cli/suggest.h"
#include "apps/cli/verb.h"
#include "apps/cli/version.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/options.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"

namespace tenon::cli {
namespace {

// Prints an error as one short line, whatever names it contains.
void report(const std::string& message) {
  stopped_in_time();
  std::cerr << "tenon: error: " << shown(message, kMessageBytes) << std::endl;
}

// Reopens standard streams that the caller closed: otherwise a file opened later would get their number, and log output
// with it. They are opened in the wrong direction, so that writing to a closed stdout is still an error.
void occupy_closed_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
}

void set_up_output(const Common& common) {
  set_up_logging(common.verbose ? "debug" : common.quiet ? "error" : "");
  for (const auto& sink : spdlog::default_logger()->sinks()) {
    auto* colored = dynamic_cast<spdlog::sinks::ansicolor_stderr_sink_mt*>(sink.get());
    if (!colored || common.color == "auto") continue;
    colored->set_color_mode(common.color == "always" ? spdlog::color_mode::always : spdlog::color_mode::never);
  }
}

void add_common_flags(CLI::App& app, Common& common, bool& devices) {
  app.add_flag("--json", common.json, "print results as JSON on stdout (help, completion and man still print text)");
  app.add_flag("-v,--verbose", common.verbose, "print more log lines");
  app.add_flag("-q,--quiet", common.quiet, "log errors only and show no progress");
  only(app.add_option("--color", common.color,
                      "colour the log; auto: on a terminal, unless NO_COLOR is set or TERM is dumb"),
       {"auto", "always", "never"})
      ->capture_default_str();
  app.add_option("--threads", common.threads, "number of CPU threads (default: TENON_THREADS, else one per processor)")
      ->transform(whole_number())
      ->check(CLI::Range(1, 1024));
  std::vector<std::string> names = backend_names();
  names.emplace_back(kAutomaticDevice);
  offer(app.add_option("--device", common.device,
                       "device to run on, by name or number as in --list-devices; auto: a usable GPU, else cpu"),
        names)
      ->capture_default_str();
  app.add_flag("--list-devices", devices, "list devices and exit");
}

// Refuses empty values, which usually come from an unset variable. Prompts and the system message of a chat may be
// empty.
void refuse_empty_values(CLI::App& app) {
  for (CLI::App* method : app.get_subcommands([](const CLI::App*) { return true; })) refuse_empty_values(*method);
  for (CLI::Option* option : app.get_options()) {
    const auto is = [&](const char* name) { return option->check_name(name); };
    if (is("PROMPT") || is("--prompt") || is("--negative-prompt") || is("--system")) continue;
    if (option->get_items_expected_max() > 0)
      option->check([](const std::string& value) { return value.empty() ? std::string("is empty") : std::string(); });
  }
}

bool takes_value(const CLI::App* app, const std::string& flag) {
  for (; app; app = app->get_parent())
    if (const CLI::Option* option = app->get_option_no_throw(flag)) return option->get_items_expected_max() > 0;
  return false;
}

// The arguments, with "--flag=" of a flag that takes a value as two, so that the value is empty: CLI11 would take the
// next argument.
std::vector<std::string> with_empty_values(const CLI::App& root, std::span<char*> given) {
  std::vector<std::string> out;
  const CLI::App* app = &root;  // what the flags belong to: a verb, or its method
  bool flags = true;            // until "--"
  for (const std::string argument : given) {
    flags = flags && argument != "--";
    const std::string flag = argument.substr(0, argument.find('='));
    const bool empty = flags && flag.starts_with("--") && flag.size() + 1 == argument.size();
    if (empty && takes_value(app, flag))
      out.insert(out.end(), {flag, ""});
    else
      out.push_back(argument);
    for (const CLI::App* inner : app->get_subcommands([](const CLI::App*) { return true; }))
      if (inner->get_name() == argument) app = inner;
  }
  return out;
}

constexpr const char* kExitCodes =
    "Exit codes: 0 ok, 1 failure, 2 wrong usage, 3 model file, 4 out of memory, 5 numeric failure, 6 no usable device, "
    "129 hung up, 130 interrupted, 143 terminated";

int parse_and_run(int argc, char** argv) {
  CLI::App app{"Tenon runs transformers and diffusion models as a short list of fused kernels.", "tenon"};
  app.set_version_flag("--version", version_text());
  app.footer(std::string("Environment variables: tenon env --help\n") + kExitCodes);
  app.fallthrough();
  app.require_subcommand(0, 1);
  Common common;
  bool devices = false;
  add_common_flags(app, common, devices);
  refuse_empty_values(app);
  Action action;
  for (const Verb& verb : verbs()) {
    CLI::App* sub = app.add_subcommand(verb.name, verb.help);
    // Methods of a verb inherit this from their verb.
    sub->footer("Every verb takes --json, -v, -q, --color, --threads and --device as well: see `tenon --help`");
    Action run = verb.declare(*sub, common);
    only_decimal_numbers(*sub);
    refuse_empty_values(*sub);
    sub->callback([&action, run = std::move(run)] { action = run; });
  }
  const std::vector<std::string> arguments = with_empty_values(app, std::span(argv, argv + argc).subspan(1));
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // taken from the back
  } catch (const CLI::Success& e) {
    return app.exit(e, std::cout, std::cerr);  // --help, --version
  } catch (const CLI::ParseError& e) {
    throw usage_error(app, arguments, e);
  }
  set_up_output(common);
  if (devices) {
    std::cout << list_devices(common);
    return 0;
  }
  if (!action) throw no_such_verb(app, "");
  common.check_device();
  const StopScope until_a_signal([] { return stop_signal() != 0; });
  return action();
}

int run(int argc, char** argv) {
  try {
    const int code = parse_and_run(argc, argv);
    // Also reports earlier failures: what could not be written is dropped from the buffers.
    if (!std::cout.flush() || std::ferror(stdout)) throw Error(ErrorKind::Internal, "stdout", "cannot write");
    stopped_in_time();
    return code;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Cancelled && stop_signal()) {
      report("interrupted");  // where does not help whoever did it
      return kSignalBase + stop_signal();
    }
    report(e.what());
    return e.exit_code();
  } catch (const std::bad_alloc&) {
    report("out of memory");
    return static_cast<int>(ErrorKind::Memory);
  } catch (const std::exception& e) {
    report(e.what());
    return static_cast<int>(ErrorKind::Internal);
  }
}

}  // namespace
}  // namespace tenon::cli

int main(int argc, char** argv) {
  tenon::cli::occupy_closed_streams();
  tenon::cli::install_signal_handlers();
  return tenon::cli::run(argc, argv);
}
