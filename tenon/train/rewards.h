// Rewards of completions.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/train/judged.h"
#include "tenon/train/reward_script.h"

namespace tenon::train {

/// How an answer is extracted from a text.
enum class Extractor : uint8_t {
  Robust,  ///< number after the last "####", ignoring "$", "*", blanks and commas; compared as a decimal
  Compat,  ///< the last match of (?:####|\\boxed\{|answer is\s*:?\s*|=)\s*\$?(-?\d+(?:\.\d+)?)\$?\}?, compared as text
};

/// The answer in comparable form, or nothing. Linear in the text. Robust drops commas and leading and trailing zeros
/// ("1,080.50" is "1080.5").
std::optional<std::string> extract_answer(std::string_view text, Extractor extractor);
/// The answer of a row of data: extract_answer, or the whole text if that is a number.
std::optional<std::string> gold_answer(std::string_view text, Extractor extractor);

/// One reward with its weight.
struct Reward {
  enum class Kind : uint8_t {
    Exact,   ///< 1 if the answer is the expected one, else 0
    Compat,  ///< with Extractor::Compat: 1, 0.1 for another answer, 0 for none
    Format,  ///< 1 if the last non-blank line is "#### " and a number
    Length,  ///< 1 - tokens / longest
    Script,  ///< value returned by `script`
  };
  Kind kind = Kind::Exact;
  double weight = 1;
  std::shared_ptr<RewardScript> script;
};
/// Rewards by name ("exact", "compat", "format", "length") or by the path of a script ("judge.py"), whose calls may
/// each take `seconds`; `weights`: one each, or empty for all 1. Error(Usage) for an unknown or duplicate name, a wrong
/// number of weights, or one that is not finite, or such a time; for a script as RewardScript.
std::vector<Reward> parse_rewards(const std::vector<std::string>& names, const std::vector<double>& weights = {},
                                  double seconds = 60);
/// "exact", or a script's name.
std::string reward_name(const Reward& reward);
/// "exact=2,judge:SHA-256=0.5", as recorded in checkpoints.
std::string rewards_text(const std::vector<Reward>& rewards);

/// Reward of one completion; not for scripts.
double reward_of(const Reward& reward, const Judged& j);
/// Reward of each completion. `columns`, and errors, as RewardScript's.
std::vector<double> rewards_of(const Reward& reward, std::span<const Judged> rows,
                               const std::set<std::string>& columns = {});

/// The mean: exactly their value if all are equal. Error(Usage) if there are none.
double mean_of(std::span<const double> values);

/// What advantages are divided by.
enum class ScaleRewards : uint8_t { None, Group };
/// Rewards minus their group's mean, for consecutive groups of `group`: exactly 0 if all are equal. With Group, divided
/// by the standard deviation (with Bessel's correction) plus 1e-4, as in TRL.
std::vector<double> advantages(const std::vector<double>& rewards, int64_t group, ScaleRewards scale);

}  // namespace tenon::train
