// Tokens to a tree.
#pragma once
#include <string>
#include <string_view>

#include "tenon/io/jinja/ast.h"

namespace tenon::jinja {

/// Parses a template. Linear. Error(Model) with `where` and the line for what is not of the subset that chat_template.h
/// describes, and for expressions or statements nested deeper than kMostNested.
Body parse(std::string_view source, const std::string& where);

inline constexpr int kMostNested = 100;

}  // namespace tenon::jinja
