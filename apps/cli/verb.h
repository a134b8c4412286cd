// Verbs of the command line. A verb is one file that registers itself; main.cpp parses the flags, runs the verb, and
// turns exceptions into exit codes.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/pipelines/family.h"

namespace tenon::cli {

/// Flags accepted by every verb, before or after its name.
struct Common {
  bool json = false;
  int verbose = 0;
  bool quiet = false;
  std::string color = "auto";                          ///< auto, always, never
  int threads = 0;                                     ///< 0: TENON_THREADS, else all processors
  std::string device = std::string(kAutomaticDevice);  ///< "auto", or a name or number from --list-devices
  mutable std::string automatic = {};                  ///< what "auto" resolved to; empty until asked for

  /// The backend for these flags, with `options` except for threads. Error(Device) if there is none of that name.
  std::shared_ptr<Backend> backend(BackendOptions options = {}) const;
  /// The device's name, even if it was given by number or as "auto". Logs once which GPU was chosen.
  std::string device_name() const;
  /// Error(Device), as by backend(), if there is no backend of that name or device of that number. Looks for no device
  /// that is named.
  void check_device() const;
  BackendOptions backend_options() const;
  /// Number of threads of the CPU backend.
  int thread_count() const;
};

/// Runs a parsed verb and returns the process's exit code.
using Action = std::function<int()>;

struct Verb {
  std::string name, help;
  /// Declares the verb's flags; `common` outlives the action.
  std::function<Action(CLI::App& app, const Common& common)> declare;
};

struct RegisterVerb {
  explicit RegisterVerb(Verb verb);
};
/// All verbs, ordered by name.
std::vector<Verb> verbs();

/// For `transform` of every integer flag: decimal digits with an optional '-' that fit 64 bits. (CLI11 reads 010 as
/// eight and clamps numbers that do not fit.)
CLI::Validator whole_number();
/// The number, if the text is one as every number flag takes it: decimal and finite, with an optional '-' and exponent.
/// (CLI11 also reads 0x10, " 1" and +1.)
std::optional<double> decimal_number(std::string_view text);
/// Makes every option of the verb and its methods for one number that need not be whole refuse what decimal_number
/// does.
void only_decimal_numbers(CLI::App& app);
/// What an option accepts besides the values offered: nothing, other words, or file names.
enum class Beside : uint8_t { Nothing, Words, Files };
struct Offer {
  std::vector<std::string> values;
  Beside beside = Beside::Words;
};
/// Names an option's usual values, for shell completion and the manual page.
CLI::Option* offer(CLI::Option* option, std::vector<std::string> values, Beside beside = Beside::Words);
/// An option that may be given several times with one value each, and does not consume what follows.
CLI::Option* several(CLI::Option* option);
/// An option for a list of values with commas between them. (With CLI11's delimiter a lone comma takes the next
/// argument.)
CLI::Option* comma_list(CLI::App& app, const std::string& flags, std::vector<std::string>& values, std::string help);
CLI::Option* comma_list(CLI::App& app, const std::string& flags, std::vector<double>& values, std::string help);
/// Warns of each of the flags that is given: `why` ("guidance is off"), so that it has no effect.
void warn_idle(const CLI::App& app, std::string_view why, std::initializer_list<const char*> flags);
/// offer() that accepts no other values; the error names the nearest one.
CLI::Option* only(CLI::Option* option, std::vector<std::string> values);
/// The values from offer(); none if it was not called.
Offer offered(const CLI::Option* option);
/// Names for -m of models that are made in memory and have the ability: "random:sd15", ..
std::vector<std::string> random_models(const AbilityName& ability);
/// Names for -m of models that have the ability: the embedded ones, and the random ones that it can use.
std::vector<std::string> model_names(const AbilityName& ability);
/// Adds --deterministic; is_batch_invariant reads its value, or else TENON_DETERMINISTIC.
void declare_deterministic(CLI::App& app, std::string& deterministic);
/// Whether it asks for results that are the same in every batch (BackendOptions::batch_invariant).
bool is_batch_invariant(const std::string& deterministic);
/// For `check` of --cfg-scale: a finite number, at least 0. (CLI11 accepts "nan" as a number in every range.)
CLI::Validator guidance_scale();

/// One line per device: number, name, description; as JSON a list of objects.
std::string list_devices(const Common& common);

}  // namespace tenon::cli
