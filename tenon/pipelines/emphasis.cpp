#include "tenon/pipelines/emphasis.h"

#include <algorithm>

#include "tenon/core/error.h"

namespace tenon {
namespace {

double sum_of(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v);
  return sum;
}

void weigh(std::span<float> window, std::span<const float> weights, int64_t width) {
  const double before = sum_of(window);
  double after = 0;
  const auto weighed = [&](size_t i) {  // may be too large for a float
    return static_cast<double>(window[i]) * static_cast<double>(weights[i / static_cast<size_t>(width)]);
  };
  for (size_t i = 0; i < window.size(); ++i) after += weighed(i);
  const double scale = after == 0 ? 1 : before / after;
  for (size_t i = 0; i < window.size(); ++i) window[i] = static_cast<float>(weighed(i) * scale);
}

}  // namespace

void apply_emphasis(std::span<float> hidden, std::span<const TokenWindow> windows, int64_t width) {
  size_t at = 0;
  for (const TokenWindow& w : windows) {
    const size_t values = w.weights.size() * static_cast<size_t>(width);
    TENON_CHECK(Internal, at + values <= hidden.size(), "emphasis")
        << "hidden states end inside a window, at element " << hidden.size();
    const bool weighted = std::any_of(w.weights.begin(), w.weights.end(), [](float x) { return x != 1.0f; });
    if (weighted) weigh(hidden.subspan(at, values), w.weights, width);
    at += values;
  }
  TENON_CHECK(Internal, at == hidden.size(), "emphasis") << "expected " << at << " values, got " << hidden.size();
}

}  // namespace tenon
