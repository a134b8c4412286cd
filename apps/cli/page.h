// Self-contained pages: one HTML file that fetches nothing.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tenon::cli {

/// A page's text. Its script finds `data` in the constant `name`; the data cannot end the script or add markup.
std::string self_contained_page(std::string_view title, std::string_view style, std::string_view body,
                                std::string_view name, const nlohmann::ordered_json& data, std::string_view script);

}  // namespace tenon::cli
