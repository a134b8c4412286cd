#include "tenon/core/units.h"

#include <cstdio>

namespace tenon {
namespace {

std::string scaled(double value, const char* unit) {
  char text[48];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f %s" : value < 100 ? "%.1f %s" : "%.0f %s", value, unit);
  return text;
}

}  // namespace

std::string bytes_text(double bytes) {
  if (bytes < 1000) return scaled(bytes, "B");
  if (bytes < 1e6) return scaled(bytes / 1e3, "kB");
  return bytes < 1e9 ? scaled(bytes / 1e6, "MB") : scaled(bytes / 1e9, "GB");
}

std::string flops_text(double flops) {
  if (flops < 1e6) return scaled(flops / 1e3, "kFLOP");
  if (flops < 1e9) return scaled(flops / 1e6, "MFLOP");
  return flops < 1e12 ? scaled(flops / 1e9, "GFLOP") : scaled(flops / 1e12, "TFLOP");
}

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return scaled(seconds * 1e6, "us");
  return seconds < 1 ? scaled(seconds * 1e3, "ms") : scaled(seconds, "s");
}

}  // namespace tenon
