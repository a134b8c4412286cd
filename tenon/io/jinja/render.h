// Rendering a template's tree.
#pragma once
#include <string>

#include "tenon/io/jinja/ast.h"

namespace tenon::jinja {

/// Bytes that a template may print.
inline constexpr size_t kMostOutput = size_t{64} << 20;

/// What the template prints with these variables. Error(Usage) with `where` and the line for data that does not fit the
/// template, and what the template itself refuses (raise_exception); Error(Model) for a template that takes more time
/// or memory than Budget and kMostOutput allow.
std::string render(const Body& body, const Dict& variables, Budget& budget, const std::string& where);

}  // namespace tenon::jinja
