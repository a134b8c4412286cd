// Explanations as JSON objects.
#pragma once
#include <nlohmann/json.hpp>

#include "tenon/explain/explanation.h"

namespace tenon::cli {

/// The documented form.
nlohmann::ordered_json explanation_object(const Explanation& e);
/// The data for the HTML page: launches of all phases with their edges, and the buffers.
nlohmann::ordered_json page_object(const Explanation& e);

std::string explanation_json(const Explanation& e);
/// One self-contained page for several networks.
std::string explanation_html(const std::vector<Explanation>& networks);

}  // namespace tenon::cli
