#include "tenon/explain/plan_diff.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace tenon {
namespace {

std::vector<std::string_view> lines_of(const std::string& text) {
  std::vector<std::string_view> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

std::string diff_plans(const Plan& a, const Plan& b) {
  const std::string text_a = print_plan(a), text_b = print_plan(b);
  const std::vector<std::string_view> x = lines_of(text_a), y = lines_of(text_b);
  // Skip the common prefix and suffix, then find the longest common subsequence of the middle.
  size_t head = 0, tail = 0;
  while (head < x.size() && head < y.size() && x[head] == y[head]) ++head;
  while (tail < x.size() - head && tail < y.size() - head && x[x.size() - 1 - tail] == y[y.size() - 1 - tail]) ++tail;
  const size_t n = x.size() - head - tail, m = y.size() - head - tail;
  std::string out;
  constexpr size_t kMaxCells = 50'000'000;
  if (n * m > kMaxCells) return "- " + std::to_string(n) + " lines\n+ " + std::to_string(m) + " lines\n";
  std::vector<uint32_t> lcs((n + 1) * (m + 1), 0);
  const auto cell = [&](size_t i, size_t j) -> uint32_t& { return lcs[i * (m + 1) + j]; };
  for (size_t i = n; i-- > 0;)
    for (size_t j = m; j-- > 0;)
      cell(i, j) = x[head + i] == y[head + j] ? cell(i + 1, j + 1) + 1 : std::max(cell(i + 1, j), cell(i, j + 1));
  for (size_t i = 0, j = 0; i < n || j < m;) {
    if (i < n && j < m && x[head + i] == y[head + j])
      ++i, ++j;
    else if (j >= m || (i < n && cell(i + 1, j) >= cell(i, j + 1)))
      out += "- " + std::string(x[head + i++]) + "\n";
    else
      out += "+ " + std::string(y[head + j++]) + "\n";
  }
  return out;
}

}  // namespace tenon
