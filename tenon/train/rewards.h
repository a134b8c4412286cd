// What a completion is worth.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/train/judged.h"
#include "tenon/train/reward_script.h"

namespace tenon::train {

/// How an answer is read out of a text.
enum class Extractor : uint8_t {
  Robust,  ///< the number behind the last "####", with "$", "*", blanks and commas let through; compared as a decimal
  Compat,  ///< the last match of (?:####|\\boxed\{|answer is\s*:?\s*|=)\s*\$?(-?\d+(?:\.\d+)?)\$?\}?, compared as text
};

/// The answer as it is compared, or nothing. Linear in the text. Robust: without commas, leading and trailing zeros
/// ("1,080.50" is "1080.5").
std::optional<std::string> extract_answer(std::string_view text, Extractor extractor);
/// The answer of a row of data: extract_answer, or the whole text where that is a number.
std::optional<std::string> gold_answer(std::string_view text, Extractor extractor);

/// One reward with its weight.
struct Reward {
  enum class Kind : uint8_t {
    Exact,   ///< 1 if the answer is the expected one, else 0
    Compat,  ///< with Extractor::Compat: 1, 0.1 for another answer, 0 for none
    Format,  ///< 1 if the last line that is not blank is "#### " and a number
    Length,  ///< 1 - tokens / longest
    Script,  ///< what `script` says
  };
  Kind kind = Kind::Exact;
  double weight = 1;
  std::shared_ptr<RewardScript> script;
};
/// Rewards by name ("exact", "compat", "format", "length") or by the path of a script ("judge.py"), whose calls may
/// take `seconds` each; `weights`: of each, or none for all 1. Error(Usage) for an unknown name, one that is given
/// twice, another number of weights, one that is not finite; for a script as RewardScript.
std::vector<Reward> parse_rewards(const std::vector<std::string>& names, const std::vector<double>& weights = {},
                                  double seconds = 60);
/// "exact", or a script's name.
std::string reward_name(const Reward& reward);
/// "exact=2,judge:SHA-256=0.5": what a checkpoint remembers.
std::string rewards_text(const std::vector<Reward>& rewards);

/// Of one completion; of no script.
double reward_of(const Reward& reward, const Judged& j);
/// Of each completion. Errors as RewardScript's.
std::vector<double> rewards_of(const Reward& reward, std::span<const Judged> rows);

/// What is divided by in advantages.
enum class ScaleRewards : uint8_t { None, Group };
/// Rewards less their group's mean, groups of `group` one after the other; Group: over the standard deviation
/// (Bessel's) plus 1e-4, as TRL. Groups of one have advantage 0.
std::vector<double> advantages(const std::vector<double>& rewards, int64_t group, ScaleRewards scale);

}  // namespace tenon::train
