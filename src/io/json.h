// Strict JSON: what a file must be before anything of it is believed.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tenon/core/error.h"

namespace tenon {

/// Nesting that no configuration, index or header of ours or the field's comes near.
inline constexpr int kMaxJsonDepth = 64;

/// Parses RFC 8259 JSON. Refuses, with an Error of `kind` that begins with `where`: invalid UTF-8 (naming the byte
/// offset), NaN and Infinity, numbers out of range, comments, duplicate keys, nesting deeper than `max_depth`, text
/// behind the value.
nlohmann::json parse_json(std::string_view text, const std::string& where, ErrorKind kind = ErrorKind::Model,
                          int max_depth = kMaxJsonDepth);

/// parse_json over a whole file; Error(Model) names the file if it cannot be read.
nlohmann::json read_json(const std::filesystem::path& path);

}  // namespace tenon
