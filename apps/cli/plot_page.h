// The fixed parts of plot's HTML page.
#pragma once
#include <string_view>

namespace tenon::cli {

extern const std::string_view kPlotStyle;   ///< CSS
extern const std::string_view kPlotBody;    ///< the body's elements, not closed
extern const std::string_view kPlotScript;  ///< draws `runs`

}  // namespace tenon::cli
