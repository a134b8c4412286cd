// The fixed parts of HTML pages, embedded in the program.
#pragma once
#include <span>

#include "tenon/core/embedded_text.h"

namespace tenon::cli {

/// Every file in pages/, by its name: "plot.css", "plot.html" (the body's elements), "plot.js".
std::span<const EmbeddedText> embedded_pages();

}  // namespace tenon::cli
