// The program's flags and verbs as data, read from the parser that --help prints; completion and the manual page are
// generated from it.
#pragma once
#include <string>
#include <vector>

#include "apps/cli/verb.h"

namespace tenon::cli {

struct DescribedOption {
  std::vector<std::string> flags;    ///< "-p", "--prompt"; empty for an argument without a flag
  std::string argument;              ///< placeholder of the value: "TEXT"; empty for a switch
  std::string help;                  ///< one line
  std::string fallback;              ///< default value, if --help shows one
  std::vector<std::string> choices;  ///< usual values; may be empty
  Beside beside = Beside::Words;     ///< what else is accepted if there are choices
  std::string positional;            ///< "MODEL", if it can be given without a flag
};

struct DescribedVerb {
  std::string name, help;
  std::vector<DescribedOption> options;  ///< includes those of its methods, each once
  std::vector<DescribedOption> own;      ///< what may follow the verb itself: without those of its methods
  std::vector<DescribedVerb> methods;    ///< words that may follow it and that have options of their own
};

struct DescribedProgram {
  std::string name, help;
  std::vector<DescribedOption> common;  ///< accepted before or after every verb
  std::vector<DescribedVerb> verbs;     ///< by name
};

DescribedProgram describe(const CLI::App& root);
/// "-p", "--prompt", .. of all options.
std::vector<std::string> flags_of(const std::vector<DescribedOption>& options);

}  // namespace tenon::cli
