// The fixed parts of explain's HTML page.
#pragma once
#include <string_view>

namespace tenon::cli {

extern const std::string_view kPageStyle;    ///< CSS
extern const std::string_view kPageBody;     ///< the body's elements, not closed
extern const std::string_view kPageScript;   ///< reads `networks`: state, header, list, details
extern const std::string_view kPageDrawing;  ///< the graph's edges and the arena's picture; starts the page

}  // namespace tenon::cli
