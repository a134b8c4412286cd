// tenon tally: counts the letters of a text.
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/cli/output_names.h"
#include "apps/cli/page.h"
#include "apps/cli/verb.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"

namespace tenon::cli {
namespace {

struct TallyFlags {
  std::string text, page, letter_case = "kept";
};

int run_tally(const TallyFlags& flags, const Common& common) {
  nlohmann::ordered_json counts = nlohmann::ordered_json::object();
  for (const char c : flags.text) {
    const std::string letter(1, flags.letter_case == "lower" ? static_cast<char>(std::tolower(c)) : c);
    counts[letter] = counts.value(letter, 0) + 1;
  }
  if (!flags.page.empty()) {
    const std::string page = self_contained_page("tally", "counts", counts);
    write_file(flags.page, std::as_bytes(std::span(page)), Overwrite::No);
  }
  if (common.json)
    std::cout << json_text(counts) << "\n";
  else
    for (const auto& [letter, count] : counts.items()) std::cout << letter << " " << count << "\n";
  return 0;
}

Action declare_tally(CLI::App& app, const Common& common) {
  const auto flags = std::make_shared<TallyFlags>();
  app.add_option("TEXT", flags->text, "text to count in")->required();
  only(app.add_option("--case", flags->letter_case, "whether capitals count apart"), {"kept", "lower"})
      ->capture_default_str();
  app.add_option("-o,--output", flags->page, "HTML file to write as well");
  return [flags, &common] { return run_tally(*flags, common); };
}

const RegisterVerb kTally{{"tally", "count the letters of a text", declare_tally}};

}  // namespace
}  // namespace tenon::cli
