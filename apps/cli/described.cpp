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

// One of these methods, as what follows a verb.
DescribedOption method_option(const std::vector<DescribedVerb>& methods) {
  DescribedOption out;
  out.argument = out.positional = "METHOD";
  out.help = "training method";
  out.beside = Beside::Nothing;
  for (const DescribedVerb& m : methods) out.choices.push_back(m.name);
  return out;
}

DescribedVerb verb_of(const CLI::App& app) {
  DescribedVerb out{app.get_name(), app.get_description(), {}, options_of(app), {}};
  std::erase_if(out.own, [](const DescribedOption& o) { return o.flags == std::vector<std::string>{"-h", "--help"}; });
  out.options = out.own;
  for (const CLI::App* m : methods_of(app)) {
    out.methods.push_back(verb_of(*m));
    for (const DescribedOption& o : out.methods.back().options) {
      const bool known = std::ranges::any_of(out.options, [&](const DescribedOption& other) {
        return std::ranges::find_first_of(other.flags, o.flags) != other.flags.end();
      });
      if (!known) out.options.push_back(o);
    }
  }
  if (out.methods.empty()) return out;
  out.own.push_back(method_option(out.methods));
  out.options.push_back(out.own.back());
  return out;
}

// `help VERB` is followed by a method if the verb has methods.
void add_methods_to_help(std::vector<DescribedVerb>& verbs) {
  const auto help = std::ranges::find(verbs, "help", &DescribedVerb::name);
  if (help == verbs.end()) return;
  for (const DescribedVerb& v : verbs)
    if (!v.methods.empty() && v.name != "help")
      help->methods.push_back({v.name, v.help, {}, {method_option(v.methods)}, {}});
}

}  // namespace

std::vector<std::string> flags_of(const std::vector<DescribedOption>& options) {
  std::vector<std::string> out;
  for (const DescribedOption& o : options) out.insert(out.end(), o.flags.begin(), o.flags.end());
  return out;
}

DescribedProgram describe(const CLI::App& root) {
  DescribedProgram out{root.get_name(), root.get_description(), options_of(root), {}};
  for (const CLI::App* app : methods_of(root)) out.verbs.push_back(verb_of(*app));
  std::ranges::sort(out.verbs, {}, &DescribedVerb::name);
  add_methods_to_help(out.verbs);
  return out;
}

}  // namespace tenon::cli
