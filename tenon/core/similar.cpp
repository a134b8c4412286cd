#include "tenon/core/similar.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

namespace tenon {
namespace {

constexpr size_t kLongestWord = 64;  // longer words are no misspelled names, and the distance takes quadratic time
constexpr int kLettersPerEdit = 3;
constexpr size_t kShortestStart = 3;

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
bool equal(char a, char b) { return lower(a) == lower(b); }

bool begins_with(std::string_view name, std::string_view start) {
  return name.size() > start.size() && std::equal(start.begin(), start.end(), name.begin(), equal);
}

// The name that begins with `start` and is a prefix of all others that do.
std::string name_that_begins(std::string_view start, std::span<const std::string> known) {
  std::string shortest;
  for (const std::string& name : known)
    if (begins_with(name, start) && (shortest.empty() || name.size() < shortest.size())) shortest = name;
  for (const std::string& name : known)
    if (begins_with(name, start) && name != shortest && !begins_with(name, shortest)) return {};
  return shortest;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  // Rows of the table: distances from prefixes of b to a[0..i-1), a[0..i) and a[0..i+1).
  std::vector<int> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (equal(a[i - 1], b[j - 1]) ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && equal(a[i - 1], b[j - 2]) && equal(a[i - 2], b[j - 1]);
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

std::string closest(std::string_view word, std::span<const std::string> known) {
  if (word.size() > kLongestWord) return {};
  int least = static_cast<int>(word.size()) / kLettersPerEdit + 1;
  std::string best;
  for (const std::string& name : known) {
    if (name.size() > kLongestWord) continue;
    const int distance = edit_distance(word, name);
    if (distance >= least) continue;
    least = distance;
    best = name;
  }
  return best.empty() && word.size() >= kShortestStart ? name_that_begins(word, known) : best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> known, std::string otherwise) {
  const std::string near = closest(word, known);
  return near.empty() ? std::move(otherwise) : "did you mean '" + near + "'?";
}

}  // namespace tenon
