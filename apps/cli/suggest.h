// What to say of a command line that was not understood.
#pragma once
#include <string>
#include <vector>

#include "apps/cli/verb.h"
#include "tenon/core/error.h"

namespace tenon::cli {

/// The error of a command line (`arguments` without the program's name) that `failure` says is wrong: what the parser
/// found, and which verb or flag was probably meant.
Error usage_error(const CLI::App& root, const std::vector<std::string>& arguments, const CLI::ParseError& failure);

/// That nothing was asked for, or a verb that does not exist.
Error no_such_verb(const CLI::App& root, const std::string& asked);

/// That a verb has no method of that name, or none at all; empty: that none was given.
Error no_such_method(const CLI::App& root, const std::string& verb, const std::string& asked);

}  // namespace tenon::cli
