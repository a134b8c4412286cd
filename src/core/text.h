// Numbers as text for people.
#pragma once
#include <string>

namespace tenon {

/// Six significant digits, without trailing zeros: "7.5", "0.01", "1e-05".
std::string number_text(double value);

}  // namespace tenon
