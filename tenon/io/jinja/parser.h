// Parses a template's tokens into a tree.
#pragma once
#include <string>
#include <string_view>

#include "tenon/io/jinja/ast.h"

namespace tenon::jinja {

/// Parses a template. Linear. Error(Model) with `where` and the line for anything outside the subset described in
/// chat_template.h, and for expressions or statements nested deeper than kMaxNested.
Body parse(std::string_view source, const std::string& where);

inline constexpr int kMaxNested = 100;

}  // namespace tenon::jinja
