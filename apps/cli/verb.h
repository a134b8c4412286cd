// Verbs of the command line. A verb is one file that registers itself; main.cpp parses, runs it, and turns what it
// throws into an exit code.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/pipelines/family.h"

namespace tenon::cli {

/// Flags that every verb understands, before or behind its name.
struct Common {
  bool json = false;
  int verbose = 0;
  bool quiet = false;
  std::string color = "auto";                          ///< auto, always, never
  int threads = 0;                                     ///< 0: TENON_THREADS, else all processors
  std::string device = std::string(kAutomaticDevice);  ///< "auto", or name or number of a line of --list-devices
  mutable std::string automatic = {};                  ///< what "auto" came to; empty until it was asked

  /// The backend that the flags ask for, with these options but their threads. Error(Device) if there is none of that
  /// name.
  std::shared_ptr<Backend> backend(BackendOptions options = {}) const;
  /// The device's name, also where it was given by number or is automatic. Says in the log, once, which GPU was taken.
  std::string device_name() const;
  BackendOptions backend_options() const;
  /// Threads that the CPU backend runs with.
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
/// All verbs by name.
std::vector<Verb> verbs();

/// For `transform` of every flag that holds a whole number: decimal digits with an optional '-', that fit 64 bits.
/// (CLI11 reads 010 as eight and takes the nearest number that fits.)
CLI::Validator whole_number();
/// What may stand beside the values that an option is offered with: nothing, other words, or names of files.
enum class Beside : uint8_t { Nothing, Words, Files };
struct Offer {
  std::vector<std::string> values;
  Beside beside = Beside::Words;
};
/// Names the values that an option is usually given, for completion in shells and the manual page.
CLI::Option* offer(CLI::Option* option, std::vector<std::string> values, Beside beside = Beside::Words);
/// An option that may be given several times, each time with one value: what follows is not its own.
CLI::Option* several(CLI::Option* option);
/// offer() with nothing beside: no other value is taken, and the error names the nearest one.
CLI::Option* only(CLI::Option* option, std::vector<std::string> values);
/// What offer() said of an option; no values if it said nothing.
Offer offered(const CLI::Option* option);
/// Names for -m of models that are made in memory and can do this: "random:sd15", ..
std::vector<std::string> random_models(const AbilityName& ability);
/// Adds --deterministic, whose value is_batch_invariant reads.
void declare_deterministic(CLI::App& app, std::string& deterministic);
/// Whether it asks for the same results in every batch (BackendOptions::batch_invariant).
bool is_batch_invariant(const std::string& deterministic);
/// For `check` of --cfg-scale: a finite number, 0 or more. (To CLI11 "nan" is a number, and in every range.)
CLI::Validator guidance_scale();

/// One line a device: number, name, what it is; a list of objects as JSON.
std::string list_devices(const Common& common);

}  // namespace tenon::cli
