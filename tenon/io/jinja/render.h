// Renders a template's tree.
#pragma once
#include <string>

#include "tenon/io/jinja/ast.h"

namespace tenon::jinja {

/// Most bytes that a template may print.
inline constexpr size_t kMaxOutput = size_t{64} << 20;

/// The template's output with these variables. Error(Usage) with `where` and the line for data that does not fit the
/// template, and for raise_exception; Error(Model) for a template that exceeds the time or memory of Budget and
/// kMaxOutput.
std::string render(const Body& body, const Dict& variables, Budget& budget, const std::string& where);

}  // namespace tenon::jinja
