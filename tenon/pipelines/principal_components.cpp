// The first three principal components of patch features, by subspace iteration, without forming a covariance matrix.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tenon/core/error.h"
#include "tenon/pipelines/image_embedder.h"

namespace tenon {
namespace {

constexpr size_t kComponents = 3;
constexpr int kRounds = 64;

struct Patches {
  std::vector<const float*> rows;
  size_t width = 0;
  std::vector<double> mean;
};

Patches patches_of(std::span<const Embedding> embeddings) {
  Patches p;
  for (const Embedding& e : embeddings) {
    if (!p.width) p.width = e.feature.size();
    TENON_CHECK(Usage, p.width > 0 && e.feature.size() == p.width, "principal components")
        << "expected features of " << std::max<size_t>(p.width, 1) << " numbers, got " << e.feature.size();
    const size_t numbers = static_cast<size_t>(e.rows) * static_cast<size_t>(e.columns) * p.width;
    TENON_CHECK(Usage, e.patches.size() == numbers, "principal components")
        << "expected patches of " << numbers << " numbers, got " << e.patches.size();
    for (size_t i = 0; i < e.patches.size(); i += p.width) p.rows.push_back(e.patches.data() + i);
  }
  p.mean.assign(p.width, 0);
  for (const float* row : p.rows)
    for (size_t j = 0; j < p.width; ++j) p.mean[j] += row[j] / static_cast<double>(p.rows.size());
  return p;
}

using Vector = std::vector<double>;

double centred_dot(const Patches& p, const float* row, const Vector& v) {
  double sum = 0;
  for (size_t j = 0; j < p.width; ++j) sum += (row[j] - p.mean[j]) * v[j];
  return sum;
}

// Makes v orthogonal to the vectors before it, with length 1 (or 0 if nothing is left of it).
void orthonormalise(std::vector<Vector>& all, size_t index) {
  Vector& v = all[index];
  const auto dot = [&](const Vector& a) {
    double sum = 0;
    for (size_t j = 0; j < v.size(); ++j) sum += a[j] * v[j];
    return sum;
  };
  for (size_t i = 0; i < index; ++i) {
    const double share = dot(all[i]);
    for (size_t j = 0; j < v.size(); ++j) v[j] -= share * all[i][j];
  }
  const double length = std::sqrt(dot(v));
  for (double& x : v) x = length > 0 ? x / length : 0;
}

std::vector<Vector> components(const Patches& p) {
  std::vector<Vector> v(kComponents, Vector(p.width));
  for (size_t i = 0; i < kComponents; ++i) {
    for (size_t j = 0; j < p.width; ++j) v[i][j] = std::sin(static_cast<double>((i + 1) * (j + 1)));  // any start
    orthonormalise(v, i);
  }
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Vector> next(kComponents, Vector(p.width, 0));
    for (const float* row : p.rows)
      for (size_t i = 0; i < kComponents; ++i) {
        const double share = centred_dot(p, row, v[i]);
        for (size_t j = 0; j < p.width; ++j) next[i][j] += share * (row[j] - p.mean[j]);
      }
    v = std::move(next);
    for (size_t i = 0; i < kComponents; ++i) orthonormalise(v, i);
  }
  for (Vector& one : v) {  // a component's sign is arbitrary: makes the largest entry positive
    const double top = *std::ranges::max_element(one, {}, [](double x) { return std::abs(x); });
    if (top < 0)
      for (double& x : one) x = -x;
  }
  return v;
}

}  // namespace

std::vector<Image> principal_components(std::span<const Embedding> embeddings, int64_t scale) {
  TENON_CHECK(Usage, scale > 0, "principal components") << "expected a positive scale, got " << scale;
  const Patches p = patches_of(embeddings);
  const std::vector<Vector> axes = components(p);
  std::vector<std::array<double, kComponents>> values(p.rows.size());
  std::array<double, kComponents> low, high;
  low.fill(std::numeric_limits<double>::infinity());
  high.fill(-std::numeric_limits<double>::infinity());
  for (size_t r = 0; r < p.rows.size(); ++r)
    for (size_t i = 0; i < kComponents; ++i) {
      values[r][i] = centred_dot(p, p.rows[r], axes[i]);
      low[i] = std::min(low[i], values[r][i]);
      high[i] = std::max(high[i], values[r][i]);
    }
  std::vector<Image> out;
  size_t first = 0;
  for (const Embedding& e : embeddings) {
    Image image{e.columns * scale, e.rows * scale, 3, {}};
    for (int64_t y = 0; y < image.height; ++y)
      for (int64_t x = 0; x < image.width; ++x)
        for (size_t i = 0; i < kComponents; ++i) {
          const double v = values[first + static_cast<size_t>(y / scale * e.columns + x / scale)][i];
          const double unit = high[i] > low[i] ? (v - low[i]) / (high[i] - low[i]) : 0.5;
          image.pixels.push_back(static_cast<uint8_t>(std::lround(unit * 255)));
        }
    first += static_cast<size_t>(e.rows * e.columns);
    out.push_back(std::move(image));
  }
  return out;
}

}  // namespace tenon
