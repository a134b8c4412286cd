// tenon help, tenon version: the output of --help and --version, as verbs.
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/cli/suggest.h"
#include "apps/cli/version.h"
#include "tenon/io/json.h"

namespace tenon::cli {
namespace {

std::vector<std::string> verb_names() {
  std::vector<std::string> out;
  for (const Verb& v : verbs()) out.push_back(v.name);
  return out;
}

const CLI::App* named(const CLI::App& of, const std::string& name) {
  for (const CLI::App* app : of.get_subcommands([](const CLI::App*) { return true; }))
    if (app->get_name() == name) return app;
  return nullptr;
}

struct Asked {
  std::string verb, method;
};

std::string help_of(const CLI::App& root, const Asked& asked) {
  // Not root.help(), which would print the help of the parsed verb.
  if (asked.verb.empty()) return root.get_formatter()->make_help(&root, root.get_name(), CLI::AppFormatMode::Normal);
  const CLI::App* verb = named(root, asked.verb);
  if (verb == nullptr) throw no_such_verb(root, asked.verb);
  if (asked.method.empty()) return verb->help(root.get_name());
  const CLI::App* method = named(*verb, asked.method);
  if (method == nullptr) throw no_such_method(root, asked.verb, asked.method);
  return method->help(root.get_name() + " " + asked.verb);
}

Action declare_help(CLI::App& app, const Common&) {
  const auto asked = std::make_shared<Asked>();
  offer(app.add_option("VERB", asked->verb, "verb to show the help of (default: the list of verbs)"), verb_names());
  app.add_option("METHOD", asked->method, "method of a verb that has several, such as grpo in `help train grpo`");
  return [&app, asked] {
    std::cout << help_of(*app.get_parent(), *asked);
    return 0;
  };
}

Action declare_version(CLI::App&, const Common& common) {
  return [&common] {
    if (common.json)
      std::cout << json_text({{"version", version()},
                              {"commit", commit()},
                              {"compiler", compiler()},
                              {"build_type", build_type()}},
                             2)
                << "\n";
    else
      std::cout << version_text() << "\n";
    return 0;
  };
}

const RegisterVerb kHelp{{"help", "show what a verb does and its flags", declare_help}};
const RegisterVerb kVersion{{"version", "print the version", declare_version}};

}  // namespace
}  // namespace tenon::cli
