// Self-contained pages: one HTML file that fetches nothing.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tenon::cli {

/// The text of a verb's page, made of pages/<verb>.css, .html and .js. The script finds `data` in the constant `name`;
/// the data cannot end the script or add markup.
std::string self_contained_page(std::string_view verb, std::string_view name, const nlohmann::ordered_json& data);

}  // namespace tenon::cli
