// Figures with units, as people read them: three digits, decimal units.
#pragma once
#include <string>

namespace tenon {

/// "1.2 GB", "340 kB".
std::string bytes_text(double bytes);
/// "340 MFLOP", "1.2 TFLOP".
std::string flops_text(double flops);
/// "41.2 us", "1.30 ms", "2.1 s".
std::string seconds_text(double seconds);

}  // namespace tenon
