#include "suggest.h"

#include <algorithm>

#include "described.h"
#include "tenon/core/similar.h"

namespace tenon::cli {
namespace {

void add_flags(const std::vector<DescribedOption>& options, std::vector<std::string>& flags) {
  for (const DescribedOption& o : options) flags.insert(flags.end(), o.flags.begin(), o.flags.end());
}

bool has(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// The long flag that an unknown "--stpes", "--stpes=3" or "-steps" stands for; empty for anything else.
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

Error usage_error(const CLI::App& root, const std::vector<std::string>& arguments, const CLI::ParseError& failure) {
  const DescribedProgram program = describe(root);
  const std::string verb = verb_of(program, arguments);
  const std::string help = "see `tenon " + (verb.empty() ? "" : verb + " ") + "--help`";
  std::vector<std::string> flags;
  add_flags(program.common, flags);
  for (const DescribedVerb& v : program.verbs)
    if (v.name == verb) add_flags(v.options, flags);
  const auto hint = [&](const std::string& argument) {
    const std::string near = meant_flag(argument, flags);
    return near.empty() ? help : "did you mean `" + near + "`?";
  };
  if (dynamic_cast<const CLI::ExtrasError*>(&failure)) {  // what the parser had no use for
    const std::vector<std::string> left = root.remaining(true);
    const auto flag = std::ranges::find_if(left, [](const std::string& a) { return a.size() > 1 && a[0] == '-'; });
    if (flag != left.end())
      return {ErrorKind::Usage, "", "there is no flag " + flag->substr(0, flag->find('=')), hint(*flag)};
    if (verb.empty() && !left.empty()) return no_such_verb(root, left.front());
    if (!left.empty()) return {ErrorKind::Usage, "", "'" + left.front() + "' was not expected", help};
  }
  for (const std::string& argument : arguments)  // -steps is read as -s teps
    if (!argument.starts_with("--") && !meant_flag(argument, flags).empty())
      return {ErrorKind::Usage, "", failure.what(), hint(argument)};
  return {ErrorKind::Usage, "", failure.what(), help};
}

}  // namespace tenon::cli
