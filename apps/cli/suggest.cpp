#include "apps/cli/suggest.h"

#include <algorithm>

#include "apps/cli/described.h"
#include "tenon/core/similar.h"
#include "tenon/core/text.h"

namespace tenon::cli {
namespace {

bool has(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// The long flag meant by an unknown "--stpes", "--stpes=3" or "-steps"; empty for anything else.
std::string meant_flag(const std::string& argument, const std::vector<std::string>& flags) {
  if (argument.size() < 3 || argument[0] != '-') return {};
  const std::string name = argument.substr(0, argument.find('='));
  if (name[1] != '-') return has(flags, "-" + name) ? "-" + name : "";  // CLI11 reads -steps as -s teps
  if (has(flags, name)) return {};
  std::vector<std::string> long_flags;
  std::copy_if(flags.begin(), flags.end(), std::back_inserter(long_flags),
               [](const std::string& f) { return f.starts_with("--"); });
  return closest(name, long_flags);
}

std::string verb_of(const DescribedProgram& program, const std::vector<std::string>& arguments) {
  for (const std::string& a : arguments)
    for (const DescribedVerb& v : program.verbs)
      if (v.name == a) return a;
  return {};
}

// The flags of `option` that occur among the arguments: "--sampler, --sampling-method".
std::string given_flags(const DescribedOption& option, const std::vector<std::string>& arguments) {
  std::string out;
  for (const std::string& flag : option.flags)
    if (std::ranges::any_of(arguments, [&](const std::string& a) { return a.substr(0, a.find('=')) == flag; }))
      out += (out.empty() ? "" : ", ") + flag;
  return out.empty() ? option.flags.back() : out;  // -W64 contains its value
}

// What a flag with too few or too many values needs: "--steps: needs a number".
std::string wanted_values(const DescribedOption& option, const std::vector<std::string>& arguments, bool too_many) {
  const std::string names = given_flags(option, arguments) + ": ";
  const auto is_flag = [&](const std::string& a) { return has(option.flags, a.substr(0, a.find('='))); };
  const auto by_flag = std::ranges::count_if(arguments, is_flag);
  if (too_many && !option.positional.empty() && by_flag == 1)
    return names + "is given in more than one way: use " + option.positional + " or " + option.flags.front();
  if (too_many) return names + "given more than once";
  if (option.argument.ends_with("INT") || option.argument.starts_with("FLOAT")) return names + "needs a number";
  const bool listed = option.beside == Beside::Nothing && !option.choices.empty();
  return names + "needs a value" + (listed ? ": " + joined(option.choices) : "");
}

// The same for the first flag that `failure` names; empty for a failure of another kind.
std::string mismatch(const CLI::App& app, const std::vector<DescribedOption>& options,
                     const std::vector<std::string>& arguments, const CLI::ParseError& failure) {
  if (!dynamic_cast<const CLI::ArgumentMismatch*>(&failure)) return {};
  const std::string text = failure.what(), name = text.substr(0, text.find(':'));
  const CLI::Option* option = app.get_option_no_throw(name);
  const auto described = std::ranges::find_if(
      options, [&](const DescribedOption& o) { return std::ranges::find(o.flags, name) != o.flags.end(); });
  if (!option || described == options.end()) return {};
  return wanted_values(*described, arguments, static_cast<int>(option->count()) > option->get_items_expected_max());
}

// CLI11's message for a value that is not a number, "Could not convert: --eta = x", reworded as for other flags; empty
// for a failure of another kind. It says the same of a switch that is given a value.
std::string no_number(const CLI::ParseError& failure, const std::vector<DescribedOption>& options) {
  static constexpr std::string_view kBegin = "Could not convert: ", kMiddle = " = ";
  const std::string text = failure.what();
  const size_t middle = text.find(kMiddle);
  if (!dynamic_cast<const CLI::ConversionError*>(&failure) || !text.starts_with(kBegin) || middle == text.npos)
    return {};
  const std::string flag = text.substr(kBegin.size(), middle - kBegin.size());
  const bool is_switch =
      std::ranges::any_of(options, [&](const DescribedOption& o) { return o.argument.empty() && has(o.flags, flag); });
  return flag + (is_switch ? ": expected no value, got '" : ": expected a number, got '") +
         shown(text.substr(middle + kMiddle.size())) + "'";
}

std::vector<std::string> methods_of(const CLI::App& root, const std::string& verb) {
  std::vector<std::string> out;
  for (const CLI::App* method : root.get_subcommand(verb)->get_subcommands([](const CLI::App*) { return true; }))
    out.push_back(method->get_name());
  return out;
}

// Whether a verb that has methods was given without one.
bool lacks_method(const CLI::App& root, const std::string& verb) {
  return !verb.empty() && root.get_subcommand(verb)->get_subcommands().empty() && !methods_of(root, verb).empty();
}

}  // namespace

Error no_such_verb(const CLI::App& root, const std::string& asked) {
  if (asked.empty()) return {ErrorKind::Usage, "", "no command given", "see `tenon --help`"};
  std::vector<std::string> verbs;
  for (const DescribedVerb& v : describe(root).verbs) verbs.push_back(v.name);
  const std::string near = closest(asked, verbs);
  const bool sentence = asked.find(' ') != std::string::npos;
  const std::string hint = !near.empty() ? "did you mean `" + near + "`?"
                           : sentence    ? "to draw: tenon generate \"..\""
                                         : "see `tenon --help`";
  return {ErrorKind::Usage, "", "there is no command '" + asked + "'", hint};
}

Error no_such_method(const CLI::App& root, const std::string& verb, const std::string& asked) {
  const std::vector<std::string> methods = methods_of(root, verb);
  return {ErrorKind::Usage, "tenon " + verb, asked.empty() ? "no method given" : "there is no method '" + asked + "'",
          methods.empty() ? "it has none" : "there are " + joined(methods)};
}

Error usage_error(const CLI::App& root, const std::vector<std::string>& arguments, const CLI::ParseError& failure) {
  const DescribedProgram program = describe(root);
  const std::string verb = verb_of(program, arguments);
  const CLI::App* app = verb.empty() ? &root : root.get_subcommand(verb);
  const std::vector<CLI::App*> method = app->get_subcommands();
  const std::string help = "see `tenon " + (verb.empty() ? "" : verb + " ") +
                           (method.empty() ? "" : method.front()->get_name() + " ") + "--help`";
  std::vector<DescribedOption> options = program.common;
  for (const DescribedVerb& v : program.verbs)
    if (v.name == verb) options.insert(options.end(), v.options.begin(), v.options.end());
  const std::vector<std::string> flags = flags_of(options);
  const auto hint = [&](const std::string& argument) {
    const std::string near = meant_flag(argument, flags);
    return near.empty() ? help : "did you mean `" + near + "`?";
  };
  if (dynamic_cast<const CLI::ExtrasError*>(&failure)) {  // arguments that the parser could not use
    const std::vector<std::string> left = root.remaining(true);
    const auto flags_end = std::ranges::find(arguments, "--");  // what follows is no flag
    const auto flag = std::ranges::find_if(left, [&](const std::string& a) {
      return a.size() > 1 && a[0] == '-' && std::find(arguments.begin(), flags_end, a) != flags_end;
    });
    if (!left.empty() && lacks_method(root, verb))
      return no_such_method(root, verb, flag == left.begin() ? "" : left.front());
    if (flag != left.end())
      return {ErrorKind::Usage, "", "there is no flag " + flag->substr(0, flag->find('=')), hint(*flag)};
    if (verb.empty() && !left.empty()) return no_such_verb(root, left.front());
    const bool words = verb == "generate";  // of a prompt
    if (!left.empty())
      return {ErrorKind::Usage, "", "'" + left.front() + "' was not expected",
              words ? "a prompt of several words needs quotes: tenon generate \"a red circle\"" : help};
  }
  for (const std::string& argument : arguments)  // -steps is read as -s teps
    if (!argument.starts_with("--") && !meant_flag(argument, flags).empty())
      return {ErrorKind::Usage, "", failure.what(), hint(argument)};
  for (const CLI::App* place : {method.empty() ? app : method.front(), app, &root})
    if (const std::string wanted = mismatch(*place, options, arguments, failure); !wanted.empty())
      return {ErrorKind::Usage, "", wanted, help};
  const std::string wanted = no_number(failure, options);
  return {ErrorKind::Usage, "", wanted.empty() ? failure.what() : wanted, help};
}

}  // namespace tenon::cli
