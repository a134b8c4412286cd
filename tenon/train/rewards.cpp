#include "tenon/train/rewards.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "tenon/core/error.h"
#include "tenon/core/not_null.h"
#include "tenon/core/text.h"

namespace tenon::train {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Consumes the characters of `text` from `at` on.
struct Cursor {
  std::string_view text;
  size_t at = 0;
  bool ended() const { return at >= text.size(); }
  char here() const { return ended() ? '\0' : text[at]; }
  bool take(char c) {
    if (ended() || text[at] != c) return false;
    ++at;
    return true;
  }
  void skip(std::string_view marks) {
    while (!ended() && marks.find(text[at]) != std::string_view::npos) ++at;
  }
  void skip_blanks() {
    while (!ended() && is_blank(text[at])) ++at;
  }
  // `word` must be in lower case.
  bool take_word(std::string_view word) {
    if (text.size() - at < word.size()) return false;
    for (size_t i = 0; i < word.size(); ++i) {
      const char c = text[at + i], lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      if (lower != word[i]) return false;
    }
    at += word.size();
    return true;
  }
  // Parses -?\d+(\.\d+)?, allowing commas in the integer part if `commas`; empty if there is none.
  std::string number(bool commas) {
    const size_t begin = at;
    take('-');
    if (!is_digit(here())) {
      at = begin;
      return {};
    }
    while (is_digit(here()) || (commas && here() == ',')) ++at;
    if (here() == '.' && at + 1 < text.size() && is_digit(text[at + 1]))
      for (++at; is_digit(here());) ++at;
    return std::string(text.substr(begin, at - begin));
  }
};

// A decimal number in a canonical spelling: no commas, no leading or trailing zeros, no "-0".
std::string canonical(std::string number) {
  std::erase(number, ',');
  const bool negative = number.starts_with('-');
  if (negative) number.erase(0, 1);
  if (number.find('.') != std::string::npos) {
    while (number.ends_with('0')) number.pop_back();
    if (number.ends_with('.')) number.pop_back();
  }
  const size_t first = number.find_first_not_of('0');
  number.erase(0, std::min(first, number.size()));
  if (number.empty() || number.starts_with('.')) number.insert(0, "0");
  return negative && number != "0" ? "-" + number : number;
}

std::string robust_number(std::string_view behind) {
  Cursor c{behind};
  c.skip(" \t$*");
  return c.number(true);
}

std::optional<std::string> robust(std::string_view text) {
  constexpr std::string_view kMark = "####";
  for (size_t at = text.rfind(kMark); at != std::string_view::npos; at = at ? text.rfind(kMark, at - 1) : at) {
    if (const std::string number = robust_number(text.substr(at + kMark.size())); !number.empty())
      return canonical(number);
    if (at == 0) break;
  }
  return {};
}

std::optional<std::string> compat(std::string_view text) {
  std::optional<std::string> last;
  for (Cursor c{text}; !c.ended();) {
    const size_t begin = c.at;
    bool prefix = c.take_word("####") || c.take_word("\\boxed{") || c.take('=');
    if (!prefix && (prefix = c.take_word("answer is"))) {
      c.skip_blanks();
      c.take(':');
    }
    std::string number;
    if (prefix) {
      c.skip_blanks();
      c.take('$');
      number = c.number(false);
    }
    if (number.empty()) {
      c.at = begin + 1;
      continue;
    }
    c.take('$');
    c.take('}');
    last = number;
  }
  return last;
}

// "#### 12" and nothing else, ignoring blanks.
bool is_answer_line(std::string_view line) {
  Cursor c{line};
  if (!c.take_word("####")) return false;
  c.skip_blanks();
  if (c.number(true).empty()) return false;
  c.skip_blanks();
  return c.ended();
}

std::string_view last_line(std::string_view text) {
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  const size_t end = text.rfind('\n');
  return end == std::string_view::npos ? text : text.substr(end + 1);
}

struct Named {
  const char* name;
  Reward::Kind kind;
};
constexpr std::array<Named, 4> kRewards{{{"exact", Reward::Kind::Exact},
                                         {"compat", Reward::Kind::Compat},
                                         {"format", Reward::Kind::Format},
                                         {"length", Reward::Kind::Length}}};

Reward parse_reward(const std::string& name, double weight, double seconds) {
  TENON_CHECK(Usage, std::isfinite(weight), "reward weights") << weight << ": expected a finite number";
  if (name.ends_with(".py")) return {Reward::Kind::Script, weight, std::make_shared<RewardScript>(name, seconds)};
  const auto known = std::ranges::find(kRewards, std::string_view(name), &Named::name);
  TENON_CHECK(Usage, known != kRewards.end(), "reward")
      << "unknown reward '" << shown(name) << "'; expected exact, compat, format, length or a script (FILE.py)";
  return {known->kind, weight, nullptr};
}

[[noreturn]] void refuse_pair(const std::string& name, const std::string& first, const std::string& second) {
  std::error_code unknown;
  const bool same = first == second || std::filesystem::equivalent(first, second, unknown);
  throw Error(ErrorKind::Usage, "reward",
              same ? shown(name) + " is given twice"
                   : shown(first) + " and " + shown(second) + " would both be called '" + shown(name) +
                         "' in metrics; rename one of them");
}

}  // namespace

std::optional<std::string> extract_answer(std::string_view text, Extractor extractor) {
  return extractor == Extractor::Robust ? robust(text) : compat(text);
}

std::optional<std::string> gold_answer(std::string_view text, Extractor extractor) {
  if (auto found = extract_answer(text, extractor)) return found;
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  const bool is_robust = extractor == Extractor::Robust;
  Cursor c{text};
  if (is_robust) c.skip(" $*");
  const std::string number = c.number(is_robust);
  if (is_robust) c.skip(" $*%.");
  if (number.empty() || !c.ended()) return {};
  return is_robust ? canonical(number) : number;
}

std::vector<Reward> parse_rewards(const std::vector<std::string>& names, const std::vector<double>& weights,
                                  double seconds) {
  TENON_CHECK(Usage, weights.empty() || weights.size() == names.size(), "reward weights")
      << "expected " << names.size() << ", one per reward, got " << weights.size();
  check_reward_seconds(seconds);
  std::vector<Reward> out;
  for (size_t i = 0; i < names.size(); ++i) {
    Reward reward = parse_reward(names[i], weights.empty() ? 1 : weights[i], seconds);
    const std::string name = reward_name(reward);
    const auto other = std::ranges::find(out, name, reward_name);
    if (other != out.end()) refuse_pair(name, names[static_cast<size_t>(other - out.begin())], names[i]);
    out.push_back(std::move(reward));
  }
  return out;
}

std::string reward_name(const Reward& reward) {
  if (reward.kind == Reward::Kind::Script) return not_null(reward.script, "script of a reward")->name();
  return std::ranges::find(kRewards, reward.kind, &Named::kind)->name;
}

std::string rewards_text(const std::vector<Reward>& rewards) {
  std::string out;
  for (const Reward& r : rewards) {
    std::array<char, 32> number{};
    const auto end = std::to_chars(number.data(), number.data() + number.size(), r.weight).ptr;
    out += (out.empty() ? "" : ",") + reward_name(r) + (r.script ? ":" + r.script->hash() : "") + "=" +
           std::string(number.data(), end);
  }
  return out;
}

double reward_of(const Reward& reward, const Judged& j) {
  if (reward.kind == Reward::Kind::Format) return is_answer_line(last_line(j.text)) ? 1 : 0;
  if (reward.kind == Reward::Kind::Length) return 1 - static_cast<double>(j.tokens) / static_cast<double>(j.longest);
  const bool as_compat = reward.kind == Reward::Kind::Compat;
  const Extractor extractor = as_compat ? Extractor::Compat : Extractor::Robust;
  const auto found = extract_answer(j.text, extractor), gold = gold_answer(j.gold, extractor);
  if (found && gold && *found == *gold) return 1;
  return found && as_compat ? 0.1 : 0;
}

std::vector<double> rewards_of(const Reward& reward, std::span<const Judged> rows,
                               const std::set<std::string>& columns) {
  if (reward.kind == Reward::Kind::Script) static_cast<void>(not_null(reward.script, "script of a reward"));
  if (reward.script) return (*reward.script)(rows, columns);
  std::vector<double> out;
  for (const Judged& j : rows) out.push_back(reward_of(reward, j));
  return out;
}

double mean_of(std::span<const double> values) {
  TENON_CHECK(Usage, !values.empty(), "mean") << "there are no values";
  double beyond = 0;  // the first, which rounding leaves alone if all are equal
  for (const double v : values) beyond += v - values[0];
  return values[0] + beyond / static_cast<double>(values.size());
}

std::vector<double> advantages(const std::vector<double>& rewards, int64_t group, ScaleRewards scale) {
  TENON_CHECK(Usage, group >= 1 && static_cast<int64_t>(rewards.size()) % group == 0, "advantages")
      << rewards.size() << " rewards do not split into groups of " << group;
  constexpr double kLeast = 1e-4;
  const auto n = static_cast<double>(group);
  std::vector<double> out(rewards);
  for (auto first = out.begin(); first != out.end(); first += group) {
    const double mean = mean_of({first, first + group});
    double squares = 0;
    for (auto r = first; r != first + group; ++r) squares += (*r - mean) * (*r - mean);
    const double deviation = group > 1 ? std::sqrt(squares / (n - 1)) : 0;
    for (auto r = first; r != first + group; ++r)
      *r = (*r - mean) / (scale == ScaleRewards::Group ? deviation + kLeast : 1);
  }
  return out;
}

}  // namespace tenon::train
