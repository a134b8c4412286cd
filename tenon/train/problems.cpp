#include "tenon/train/problems.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "tenon/core/error.h"
#include "tenon/core/philox.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"

namespace tenon::train {
namespace {

constexpr size_t kMaxData = size_t{1} << 30;

std::string text_of(const nlohmann::json& row, const std::string& where, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto it = row.find(key);
    if (it == row.end()) continue;
    TENON_CHECK(Usage, it->is_string(), where) << "'" << key << "' is " << shown_json(*it) << ", expected a string";
    return it->get<std::string>();
  }
  std::string names;
  for (const char* key : keys) names += (names.empty() ? "'" : " or '") + std::string(key) + "'";
  throw Error(ErrorKind::Usage, where, "has no " + names);
}

// A row's fields besides prompt and answer, for rewards.
std::string other_columns(nlohmann::json row) {
  for (const char* key : {row.contains("prompt") ? "prompt" : "question", "answer"}) row.erase(key);
  return row.empty() ? std::string() : row.dump();
}

void check_place(int64_t k, int64_t n) {
  TENON_CHECK(Usage, k >= 0 && n > 0, "problems") << "there is no problem " << k << " of " << n;
}

// The permutation of round `round`: sorted by a key drawn for each index.
std::vector<int64_t> order_of(int64_t n, uint64_t seed, int64_t round) {
  std::vector<std::pair<uint64_t, int64_t>> keys;
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = philox(seed, static_cast<uint64_t>(i), static_cast<uint64_t>(round));
    keys.emplace_back(static_cast<uint64_t>(bits[0]) << 32 | bits[1], i);
  }
  std::ranges::sort(keys);
  std::vector<int64_t> out;
  for (const auto& [key, i] : keys) out.push_back(i);
  return out;
}

}  // namespace

std::vector<Problem> parse_problems(std::string_view text, const std::string& where) {
  std::vector<Problem> out;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string at = where + ":" + std::to_string(number);
    const nlohmann::json row = parse_json(line, at, ErrorKind::Usage);
    TENON_CHECK(Usage, row.is_object(), at) << "is " << shown_json(row) << ", expected an object";
    out.push_back({text_of(row, at, {"prompt", "question"}), text_of(row, at, {"answer"}), other_columns(row), at});
    TENON_CHECK(Usage, !out.back().prompt.empty(), at) << "has an empty prompt";
  }
  TENON_CHECK(Usage, !out.empty(), where) << "holds no problems";
  return out;
}

std::vector<Problem> read_problems(const std::filesystem::path& file) {
  return parse_problems(read_argument_file(file, kMaxData), file.string());
}

std::set<std::string> column_names(const std::vector<Problem>& rows) {
  std::set<std::string> out;
  for (const Problem& p : rows) {
    if (p.columns.empty()) continue;
    const nlohmann::json columns = parse_json(p.columns, p.place, ErrorKind::Usage);
    TENON_CHECK(Usage, columns.is_object(), p.place) << "has columns " << shown_json(columns) << ", expected an object";
    for (const auto& [name, value] : columns.items()) out.insert(name);
  }
  return out;
}

int64_t shuffled_index(int64_t k, int64_t n, uint64_t seed) {
  check_place(k, n);
  return order_of(n, seed, k / n)[static_cast<size_t>(k % n)];
}

ProblemAt shuffled(std::vector<Problem> problems, uint64_t seed) {
  struct Order {
    std::vector<Problem> problems;
    int64_t round = -1;
    std::vector<int64_t> places;
  };
  auto order = std::make_shared<Order>();
  order->problems = std::move(problems);
  return [order, seed](int64_t k) {
    const auto n = static_cast<int64_t>(order->problems.size());
    check_place(k, n);
    if (k / n != order->round) {
      order->round = k / n;
      order->places = order_of(n, seed, order->round);
    }
    return order->problems[static_cast<size_t>(order->places[static_cast<size_t>(k % n)])];
  };
}

}  // namespace tenon::train
