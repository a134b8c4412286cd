// Pages that stand by themselves: one HTML file without anything to fetch.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tenon::cli {

/// A page's text. Its script finds `data` in the constant `name`; nothing of the data can end the script or begin
/// markup.
std::string self_contained_page(std::string_view title, std::string_view style, std::string_view body,
                                std::string_view name, const nlohmann::ordered_json& data, std::string_view script);

}  // namespace tenon::cli
