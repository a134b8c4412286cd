#include "apps/cli/described.h"

#include <algorithm>

namespace tenon::cli {
namespace {

// "UINT" and the like from CLI11, without the lists of choices, which are given separately.
std::string argument_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string type = option.get_type_name();
  const std::string plain = type.substr(0, type.find_first_of(" :{"));
  return plain.empty() ? "VALUE" : plain;
}

DescribedOption option_of(const CLI::Option& option) {
  DescribedOption out;
  for (const std::string& name : option.get_snames()) out.flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.flags.push_back("--" + name);
  out.argument = out.flags.empty() ? option.get_name(true) : argument_of(option);
  out.help = option.get_description();
  out.fallback = option.get_default_str();
  const Offer values = offered(&option);
  out.choices = values.values;
  out.beside = values.beside;
  if (option.get_positional()) out.positional = option.get_name(true);
  return out;
}

std::vector<const CLI::App*> methods_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<DescribedOption> options_of(const CLI::App& app) {
  std::vector<DescribedOption> out;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) out.push_back(option_of(*option));  // otherwise it exists only to be refused
  return out;
}

// Includes the flags of a verb's methods, each once, and the methods as what follows the verb.
std::vector<DescribedOption> options_with_methods(const CLI::App& app) {
  std::vector<DescribedOption> out = options_of(app);
  DescribedOption method;
  method.argument = method.positional = "METHOD";
  method.help = "training method";
  for (const CLI::App* m : methods_of(app)) {
    method.choices.push_back(m->get_name());
    for (DescribedOption& o : options_of(*m)) {
      const bool known = std::ranges::any_of(out, [&](const DescribedOption& other) {
        return std::ranges::find_first_of(other.flags, o.flags) != other.flags.end();
      });
      if (!known) out.push_back(std::move(o));
    }
  }
  method.beside = Beside::Nothing;
  if (!method.choices.empty()) out.push_back(std::move(method));
  return out;
}

}  // namespace

std::vector<std::string> flags_of(const std::vector<DescribedOption>& options) {
  std::vector<std::string> out;
  for (const DescribedOption& o : options) out.insert(out.end(), o.flags.begin(), o.flags.end());
  return out;
}

DescribedProgram describe(const CLI::App& root) {
  DescribedProgram out{root.get_name(), root.get_description(), options_of(root), {}};
  for (const CLI::App* app : root.get_subcommands([](const CLI::App*) { return true; })) {
    DescribedVerb& verb = out.verbs.emplace_back(DescribedVerb{app->get_name(), app->get_description(), {}});
    for (DescribedOption& option : options_with_methods(*app))
      if (option.flags != std::vector<std::string>{"-h", "--help"}) verb.options.push_back(std::move(option));
  }
  std::ranges::sort(out.verbs, {}, &DescribedVerb::name);
  return out;
}

}  // namespace tenon::cli
