#include "tenon/core/draw.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace tenon {
namespace {

// The smallest score that the rule keeps. Scores are already divided by the temperature; `top` is their largest.
template <class T>
T min_score_kept(const std::vector<T>& scores, const DrawRule& rule, T top) {
  std::vector<T> left;
  T least = -INFINITY;
  const auto weight = [&](T s) { return std::exp(static_cast<double>(s) - top); };
  const bool some = rule.top_k >= 1 && rule.top_k < static_cast<double>(scores.size());
  if (some || rule.top_p < 1) left = scores;
  if (some) {
    const auto kth = left.begin() + static_cast<std::ptrdiff_t>(rule.top_k) - 1;
    std::nth_element(left.begin(), kth, left.end(), std::greater());
    least = *kth;
    std::erase_if(left, [&](T s) { return s < least; });
  }
  if (rule.top_p < 1) {  // a heap yields the largest in order; few are needed
    double whole = 0, kept = 0;
    for (const T s : left) whole += weight(s);
    std::make_heap(left.begin(), left.end());
    for (auto end = left.end(); end != left.begin() && (end == left.end() || kept < rule.top_p * whole);) {
      std::pop_heap(left.begin(), end--);
      kept += weight(least = *end);
    }
  }
  if (rule.min_p > 0) least = std::max(least, static_cast<T>(top + std::log(rule.min_p)));
  return std::min(least, top);  // no rule drops the largest
}

}  // namespace

template <class T>
DrawnToken draw_token(std::span<const T> given, const DrawRule& rule, double u) {
  constexpr DrawnToken kNone{0, NAN};
  size_t best = 0;
  for (size_t i = 0; i < given.size(); ++i) {
    if (!(given[i] < INFINITY)) return kNone;
    if (given[i] > given[best]) best = i;
  }
  if (given.empty() || given[best] == -INFINITY) return kNone;
  const bool draws = rule.temperature > 0;
  std::vector<T> scores(given.begin(), given.end());
  if (draws)
    for (T& s : scores) s /= static_cast<T>(rule.temperature);
  const T top = scores[best], least = draws ? min_score_kept(scores, rule, top) : -INFINITY;
  double whole = 0, sum = 0;
  std::vector<double> weights(scores.size());
  for (size_t i = 0; i < scores.size(); ++i)
    whole += weights[i] = scores[i] < least ? 0 : std::exp(static_cast<double>(scores[i]) - top);
  size_t chosen = best;  // kept if rounding makes u * whole reach the last sum
  for (size_t i = 0; draws && i < weights.size(); ++i) {
    sum += weights[i];
    if (sum <= u * whole) continue;
    chosen = i;
    break;
  }
  return {static_cast<int32_t>(chosen), static_cast<double>(scores[chosen]) - top - std::log(whole)};
}

template DrawnToken draw_token<float>(std::span<const float> scores, const DrawRule& rule, double u);
template DrawnToken draw_token<double>(std::span<const double> scores, const DrawRule& rule, double u);

}  // namespace tenon
