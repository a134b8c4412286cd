// The flags and verbs of the program as data, read off the parser that --help prints: what completion and the manual
// page are made of.
#pragma once
#include <string>
#include <vector>

#include "apps/cli/verb.h"

namespace tenon::cli {

struct DescribedOption {
  std::vector<std::string> flags;    ///< "-p", "--prompt"; empty for an argument without a flag
  std::string argument;              ///< what stands for the value: "TEXT"; empty for a switch
  std::string help;                  ///< one line
  std::string fallback;              ///< value where it is not given, if --help shows one
  std::vector<std::string> choices;  ///< values that it is usually given; may be empty
  Beside beside = Beside::Words;     ///< what else it may be given, where there are choices
  std::string positional;            ///< "MODEL", where it can be given without a flag
};

struct DescribedVerb {
  std::string name, help;
  std::vector<DescribedOption> options;
};

struct DescribedProgram {
  std::string name, help;
  std::vector<DescribedOption> common;  ///< before or behind every verb
  std::vector<DescribedVerb> verbs;     ///< by name
};

DescribedProgram describe(const CLI::App& root);
/// "-p", "--prompt", .. of all of them.
std::vector<std::string> flags_of(const std::vector<DescribedOption>& options);

}  // namespace tenon::cli
