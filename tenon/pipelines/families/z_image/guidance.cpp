#include "tenon/pipelines/families/z_image/guidance.h"

#include <cmath>
#include <span>

namespace tenon {
namespace {

double norm(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

}  // namespace

std::vector<float> guided(std::vector<float> predictions, int64_t images, const ZImageGuidance& guidance, double time) {
  const size_t n = predictions.size() / 2, each = n / static_cast<size_t>(images);
  const std::span<const float> negative = std::span(predictions).subspan(n);
  const auto scale = static_cast<float>(guidance.scale);
  if (time <= guidance.truncation)
    for (size_t first = 0; first < n; first += each) {
      const std::span<float> one = std::span(predictions).subspan(first, each);
      const bool bounded = guidance.normalization > 0;
      const double most = bounded ? guidance.normalization * norm(one) : 0;
      for (size_t k = 0; k < each; ++k) one[k] = negative[first + k] + scale * (one[k] - negative[first + k]);
      const double length = bounded ? norm(one) : 0;
      if (length <= most) continue;
      for (float& v : one) v *= static_cast<float>(most / length);
    }
  predictions.resize(n);
  return predictions;
}

}  // namespace tenon
