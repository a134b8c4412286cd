// tenon help, tenon version: what --help and --version say, as verbs.
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

Action declare_help(CLI::App& app, const Common&) {
  const auto asked = std::make_shared<std::string>();
  offer(app.add_option("VERB", *asked, "what to explain (default: the program)"), verb_names());
  return [&app, asked] {
    const CLI::App* root = app.get_parent();
    if (asked->empty()) {
      // Not root->help(), which is that of the verb that was parsed.
      std::cout << root->get_formatter()->make_help(root, root->get_name(), CLI::AppFormatMode::Normal);
      return 0;
    }
    for (const CLI::App* verb : root->get_subcommands([](const CLI::App*) { return true; }))
      if (verb->get_name() == *asked) {
        std::cout << verb->help(root->get_name());
        return 0;
      }
    throw no_such_verb(*root, *asked);
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

const RegisterVerb kHelp{{"help", "what a verb does, and its flags", declare_help}};
const RegisterVerb kVersion{{"version", "print the version", declare_version}};

}  // namespace
}  // namespace tenon::cli
