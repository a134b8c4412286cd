// Explanations as JSON objects.
#pragma once
#include <nlohmann/json.hpp>

#include "tenon/explain/explanation.h"

namespace tenon::cli {

/// The documented shape.
nlohmann::ordered_json explanation_object(const Explanation& e);
/// What the HTML page is drawn from: launches of all phases with their edges, and the buffers.
nlohmann::ordered_json page_object(const Explanation& e);

std::string explanation_json(const Explanation& e);
/// One self-contained page over several networks.
std::string explanation_html(const std::vector<Explanation>& networks);

}  // namespace tenon::cli
