#include "tenon/train/policy_batch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "tenon/core/compare.h"
#include "tenon/core/error.h"
#include "tenon/train/rewards.h"

namespace tenon::train {
namespace {

void check_rows(const std::vector<std::vector<int32_t>>& prompts, const std::vector<Completion>& made,
                const std::vector<double>& advantages) {
  TENON_CHECK(Usage, !prompts.empty() && made.size() == prompts.size() && advantages.size() == prompts.size(), "batch")
      << "expected prompts, and a completion and an advantage for each, got " << prompts.size() << " prompts, "
      << made.size() << " completions and " << advantages.size() << " advantages";
  for (size_t r = 0; r < prompts.size(); ++r)
    TENON_CHECK(
        Usage,
        !prompts[r].empty() && !made[r].tokens.empty() && made[r].log_probabilities.size() == made[r].tokens.size(),
        "batch")
        << "row " << r << " has " << prompts[r].size() << " tokens of a prompt, " << made[r].tokens.size()
        << " of a completion and " << made[r].log_probabilities.size()
        << " log-probabilities; expected 1 or more, and as many log-probabilities as tokens";
}

}  // namespace

PolicyBatch::PolicyBatch(const std::vector<std::vector<int32_t>>& prompts, const std::vector<Completion>& made,
                         const std::vector<double>& of_rows, bool truncated_out, int64_t multiple, int64_t sharers)
    : rows(std::ssize(prompts)), multiple_(multiple) {
  check_rows(prompts, made, of_rows);
  TENON_CHECK(Usage, multiple > 0, "batch") << "a multiple of " << multiple << " tokens: expected 1 or more";
  const auto length = [&](size_t r) { return std::ssize(prompts[r]) + std::ssize(made[r].tokens) - 1; };
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<int64_t> first_of(prompts.size()), longest_of(prompts.size(), 0);  // of the rows that share a prompt
  for (size_t r = 0; r < prompts.size(); ++r) {
    const auto row = static_cast<int64_t>(r);
    const bool joins = r > 0 && prompts[r] == prompts[r - 1] && row - first_of[r - 1] < sharers;
    first_of[r] = joins ? first_of[r - 1] : row;
    int64_t& longest = longest_of[static_cast<size_t>(first_of[r])];
    longest = std::max(longest, length(r));
  }
  std::ranges::stable_sort(order, {}, [&](size_t r) {
    return std::tuple(longest_of[static_cast<size_t>(first_of[r])], first_of[r], length(r));
  });
  for (const size_t r : order) {
    lengths.push_back(length(r));
    alike.push_back(first_of[r]);
    advantages.push_back(static_cast<float>(of_rows[r]));
  }
  tokens = width(0, rows);
  const auto all = static_cast<size_t>(rows * tokens);
  ids.assign(all, 0);
  target.assign(all, -1);
  old.assign(all, 0);
  size_t begin = 0;
  for (const size_t r : order) {
    const std::vector<int32_t>&prompt = prompts[r], &completion = made[r].tokens;
    std::ranges::copy(prompt, ids.begin() + static_cast<std::ptrdiff_t>(begin));
    for (size_t i = 0; i < completion.size(); ++i) {
      const size_t place = begin + prompt.size() - 1 + i;  // the token that it follows
      if (i + 1 < completion.size()) ids[place + 1] = completion[i];
      if (truncated_out && !made[r].ended) continue;
      target[place] = completion[i];
      old[place] = static_cast<float>(made[r].log_probabilities[i]);
    }
    begin += static_cast<size_t>(tokens);
  }
}

int64_t PolicyBatch::width(int64_t first, int64_t count) const {
  const int64_t longest = *std::max_element(lengths.begin() + first, lengths.begin() + first + count);
  return (longest + multiple_ - 1) / multiple_ * multiple_;
}

void PolicyBatch::give(Gradients& to, int64_t first, int64_t count, bool with_reference) const {
  const std::vector<int32_t> these = part(ids, first, count);
  to.set("tokens", {DType::I32, {count, width(first, count)}, these.data()});
  give_targets(to, first, count, with_reference);
}

void PolicyBatch::give_targets(Gradients& to, int64_t first, int64_t count, bool with_reference) const {
  const Shape shape{count, width(first, count)};
  const std::vector<int32_t> wanted = part(target, first, count);
  to.set("target", {DType::I32, shape, wanted.data()});
  to.set("old", part(old, first, count));
  to.set("advantage", {DType::F32, {count, 1}, advantages.data() + first});
  if (with_reference) to.set("reference", part(reference, first, count));
}

int64_t PolicyBatch::counted() const {
  return std::ranges::count_if(target, [](int32_t t) { return t >= 0; });
}

double PolicyBatch::largest_ratio_error(const std::vector<float>& logp) const {
  Comparison with_zero(Shape{counted()}, Shape{counted()});
  for (size_t i = 0; i < target.size(); ++i)
    if (target[i] >= 0) with_zero.add(std::expm1(static_cast<double>(logp[i]) - static_cast<double>(old[i])), 0, 0);
  return with_zero.worst();
}

PolicyFacts PolicyBatch::facts(const std::vector<float>& logp, const nn::PolicyOptions& o) const {
  PolicyFacts out;
  const double n = static_cast<double>(std::max<int64_t>(counted(), 1));
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] < 0) continue;
    const double cur = static_cast<double>(logp[i]), ratio = std::exp(cur - static_cast<double>(old[i]));
    const float a = advantages[i / static_cast<size_t>(tokens)];
    out.clipped_low += (a < 0 && ratio < 1 - o.clip_low) / n;
    out.clipped_high += (a > 0 && ratio > 1 + o.clip_high) / n;
    if (reference.empty()) continue;
    const double d = static_cast<double>(reference[i]) - cur;
    out.kl += (std::expm1(d) - d) / n;
  }
  return out;
}

void batch_metrics(const std::vector<Judgement>& judged, const std::vector<Completion>& made, int64_t group,
                   nlohmann::ordered_json& metrics) {
  TENON_CHECK(Usage, !judged.empty() && made.size() == judged.size() && group > 0 && std::ssize(judged) % group == 0,
              "batch")
      << made.size() << " completions with " << judged.size() << " judgements do not split into groups of " << group;
  const auto n = static_cast<double>(judged.size());
  double squares = 0, right = 0, tokens = 0, truncated = 0;
  std::vector<double> rewards;
  int64_t flat = 0;
  for (size_t r = 0; r < judged.size(); ++r) {
    rewards.push_back(judged[r].reward);
    right += judged[r].right;
    tokens += static_cast<double>(made[r].tokens.size());
    truncated += !made[r].ended;
    const size_t first = r / static_cast<size_t>(group) * static_cast<size_t>(group);
    if (r != first) continue;
    const auto of_group = std::span(judged).subspan(first, static_cast<size_t>(group));
    flat += std::ranges::all_of(of_group, [&](const Judgement& j) { return j.reward == judged[first].reward; });
  }
  const double reward = mean_of(rewards);
  for (const double r : rewards) squares += (r - reward) * (r - reward) / n;
  metrics["reward"] = reward;
  metrics["reward_std"] = std::sqrt(squares);
  metrics["exact_match"] = right / n;  // whole numbers so far, so that all right gives exactly 1
  metrics["flat_groups"] = static_cast<double>(flat) * static_cast<double>(group) / n;
  metrics["tokens"] = tokens / n;
  metrics["truncated"] = truncated / n;
}

}  // namespace tenon::train
