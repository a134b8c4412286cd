// Error messages for command lines that were not understood.
#pragma once
#include <string>
#include <vector>

#include "apps/cli/verb.h"
#include "tenon/core/error.h"

namespace tenon::cli {

/// The error for a command line (`arguments` without the program's name) that the parser refused with `failure`: what
/// is wrong, and which verb or flag was probably meant.
Error usage_error(const CLI::App& root, const std::vector<std::string>& arguments, const CLI::ParseError& failure);

/// Error for no verb at all, or for a verb that does not exist.
Error no_such_verb(const CLI::App& root, const std::string& asked);

/// Error for a verb without a method of that name, or without methods; empty `asked`: no method was given.
Error no_such_method(const CLI::App& root, const std::string& verb, const std::string& asked);

}  // namespace tenon::cli
