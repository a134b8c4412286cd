#include "apps/cli/verb.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tenon/core/error.h"
#include "tenon/core/line.h"
#include "tenon/core/log.h"
#include "tenon/core/options.h"
#include "tenon/core/similar.h"
#include "tenon/core/text.h"
#include "tenon/io/json.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/model_files.h"
#include "tenon/pipelines/model_parts.h"
#include "tenon/pipelines/random_weights.h"
#include "tenon/pipelines/text_generator.h"

namespace tenon::cli {
namespace {
std::vector<Verb>& registry() {
  static std::vector<Verb> all;
  return all;
}

std::map<const CLI::Option*, Offer>& offers() {
  static std::map<const CLI::Option*, Offer> all;
  return all;
}

// "--targets" of "--targets,--lora-layers".
std::string first_of(const std::string& flags) { return flags.substr(0, flags.find(',')); }

// Digits only; -1 otherwise.
int number_or_minus_one(const std::string& text) {
  int value = -1;
  return is_number(text, value) ? value : -1;
}

// Why decimal_number refuses a text.
std::string number_fault(std::string_view text) {
  double value = 0;
  const std::errc error = read_number(text, value);
  if (error == std::errc::result_out_of_range) return "'" + shown(text) + "' is out of range";
  return (error == std::errc() ? "expected a finite number, got '" : "expected a number, got '") + shown(text) + "'";
}

// Backends, and after them the further devices of those that have several: "cuda:1", ..
std::vector<std::string> device_names(const BackendOptions& options) {
  std::vector<std::string> names = backend_names();
  const size_t backends = names.size();
  for (size_t i = 0; i < backends; ++i) try {
      for (int ordinal = 1;; ++ordinal) {
        const std::string name = names[i] + ":" + std::to_string(ordinal);
        make_backend(name, options);
        names.push_back(name);
      }
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Device) throw;  // there are no more
    }
  return names;
}
}  // namespace

RegisterVerb::RegisterVerb(Verb verb) { registry().push_back(std::move(verb)); }

std::vector<Verb> verbs() {
  std::vector<Verb> all = registry();
  std::sort(all.begin(), all.end(), [](const Verb& a, const Verb& b) { return a.name < b.name; });
  return all;
}

BackendOptions Common::backend_options() const {
  if (threads > 0) return {threads};
  const std::string text = option(Option::Threads);
  if (text.empty()) return {};
  const int count = number_or_minus_one(text);
  TENON_CHECK(Usage, count > 0 && count <= 1024, "TENON_THREADS")
      << "expected a number from 1 to 1024, got '" << text << "'";
  return {count};
}

int Common::thread_count() const {
  if (const int asked = backend_options().threads; asked > 0) return asked;
  cpu_set_t mine;
  return sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 1;
}

std::string Common::device_name() const {
  if (device == kAutomaticDevice) {
    if (!automatic.empty()) return automatic;
    const ChosenBackend chosen = choose_backend();
    if (!chosen.problem.empty()) spdlog::warn("{}", chosen.problem);
    if (!chosen.device.empty())
      spdlog::info("device {}: {} (choose another with --device, see --list-devices)", chosen.name, chosen.device);
    return automatic = chosen.name;
  }
  const int number = number_or_minus_one(device);
  std::vector<std::string> names = backend_names();
  if (number >= static_cast<int>(names.size())) names = device_names(backend_options());
  return number >= 0 && number < static_cast<int>(names.size()) ? names[static_cast<size_t>(number)] : device;
}

void Common::check_device() const {
  if (device == kAutomaticDevice) return;
  const std::string name = device_name(), plain = name.substr(0, name.find(':'));
  const std::vector<std::string> known = backend_names();
  if (std::find(known.begin(), known.end(), plain) == known.end()) make_backend(name);
}

std::shared_ptr<Backend> Common::backend(BackendOptions options) const {
  options.threads = backend_options().threads;
  return make_backend(device_name(), options);
}

CLI::Validator whole_number() {
  const auto read = [](std::string& text) -> std::string {
    int64_t value = 0;
    const std::errc error = read_number(text, value);
    if (error == std::errc::result_out_of_range) return "'" + text + "' is out of range";
    if (error != std::errc()) return "'" + text + "' is not a whole number";
    text = std::to_string(value);
    return {};
  };
  return {read, "", "whole number"};
}

std::optional<double> decimal_number(std::string_view text) {
  double value = 0;
  return is_number(text, value) && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

void only_decimal_numbers(CLI::App& app) {
  const CLI::Validator check([](std::string& text) { return decimal_number(text) ? "" : number_fault(text); }, "",
                             "number");
  // Options for lists check each item themselves (comma_list).
  for (CLI::Option* option : app.get_options())
    if (option->get_type_name().starts_with("FLOAT") && option->get_items_expected_max() == 1) option->transform(check);
  for (CLI::App* method : app.get_subcommands([](const CLI::App*) { return true; })) only_decimal_numbers(*method);
}

CLI::Option* offer(CLI::Option* option, std::vector<std::string> values, Beside beside) {
  offers()[option] = {std::move(values), beside};
  return option;
}

CLI::Option* several(CLI::Option* option) {
  return option->expected(1)->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

namespace {

// The items of all arguments, as an option's callback; `read` makes one of each text or throws.
template <class T, class Read>
CLI::Option* list_option(CLI::App& app, const std::string& flags, std::vector<T>& values, std::string help, Read read) {
  const auto set = [&values, flags, read](const std::vector<std::string>& given) {
    values.clear();
    for (const std::string& argument : given)
      for (const std::string& item : CLI::detail::split(argument, ','))
        if (!item.empty()) values.push_back(read(item));
    if (values.empty()) throw CLI::ValidationError(first_of(flags), "got an empty list: '" + joined(given, " ") + "'");
  };
  return app.add_option_function<std::vector<std::string>>(flags, set, std::move(help));
}

}  // namespace

CLI::Option* comma_list(CLI::App& app, const std::string& flags, std::vector<std::string>& values, std::string help) {
  CLI::Option* option = list_option(app, flags, values, std::move(help), [](const std::string& item) { return item; });
  return values.empty() ? option : option->default_str("[" + joined(values, ",") + "]");
}

CLI::Option* comma_list(CLI::App& app, const std::string& flags, std::vector<double>& values, std::string help) {
  const auto read = [flags](const std::string& item) {
    const std::optional<double> value = decimal_number(item);
    if (!value) throw CLI::ValidationError(first_of(flags), number_fault(item));
    return *value;
  };
  return list_option(app, flags, values, std::move(help), read)->type_name("FLOAT");
}

void warn_idle(const CLI::App& app, std::string_view why, std::initializer_list<const char*> flags) {
  for (const char* flag : flags)
    if (app.count(flag) > 0) spdlog::warn("{}, so that {} has no effect", why, flag);
}

CLI::Option* only(CLI::Option* option, std::vector<std::string> values) {
  const auto check = [values](std::string& text) -> std::string {
    if (std::find(values.begin(), values.end(), text) != values.end()) return {};
    const std::string near = did_you_mean(text, values);
    return "'" + text + "' is not one of " + joined(values) + (near.empty() ? "" : "; " + near);
  };
  std::string list;
  for (const std::string& v : values) list += (list.empty() ? "{" : ",") + v;
  option->check(CLI::Validator(check, list + "}", "choice"));
  return offer(option, std::move(values), Beside::Nothing);
}

Offer offered(const CLI::Option* option) {
  const auto found = offers().find(option);
  return found == offers().end() ? Offer{} : found->second;
}

std::vector<std::string> random_models(const AbilityName& ability) {
  std::vector<std::string> out;
  for (const ModelFamily* f : families_that(ability))
    for (const auto& [name, about] : f->presets()) out.push_back(std::string(kRandomModel) + name);
  return out;
}

std::vector<std::string> model_names(const AbilityName& ability) {
  std::vector<std::string> out = embedded_models();
  // By name, without reading the models: the verbs are declared at every start.
  const bool of_text = ability.verb == TextGenerator::kAbility.verb, any = ability.verb == ModelParts::kAbility.verb;
  if (!any)
    std::erase_if(out, [&](const std::string& m) { return (m == TextGenerator::kAbility.embedded) != of_text; });
  // Random weights have no tokenizer, so that they neither draw nor write.
  if (!of_text && ability.verb != ImageGenerator::kAbility.verb)
    for (std::string& name : random_models(ability)) out.push_back(std::move(name));
  return out;
}

void declare_deterministic(CLI::App& app, std::string& deterministic) {
  only(app.add_option("--deterministic", deterministic,
                      "run: every run gives the same results; batch: results also do not depend on what else is in the "
                      "batch (slower on a GPU)"),
       {"run", "batch"})
      ->default_str("run");
}

bool is_batch_invariant(const std::string& deterministic) {
  const std::string set = option(Option::Deterministic);
  TENON_CHECK(Usage, set.empty() || set == "run" || set == "batch", "TENON_DETERMINISTIC")
      << "expected run, batch or nothing, got '" << shown(set) << "'";
  return (deterministic.empty() ? set : deterministic) == "batch";
}

CLI::Validator guidance_scale() {
  const auto check = [](std::string& text) -> std::string {
    const std::optional<double> value = decimal_number(text);
    return value && *value >= 0 ? "" : "expected a finite number of at least 0, got '" + escaped(text) + "'";
  };
  return {check, "", "guidance scale"};
}

std::string list_devices(const Common& common) {
  std::string out;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::string& name : device_names(common.backend_options())) {
    std::string about;
    try {
      about = make_backend(name, common.backend_options())->describe();
    } catch (const Error& e) {
      about = std::string("not usable: ") + e.what();
    }
    out.append(std::to_string(list.size())).append("\t").append(name).append("\t").append(about).append("\n");
    list.push_back({{"number", list.size()}, {"name", name}, {"description", about}});
  }
  return common.json ? json_text(list, 2) + "\n" : out;
}

}  // namespace tenon::cli
