#include "tenon/train/policy_batch.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/compare.h"

namespace tenon::train {

PolicyBatch::PolicyBatch(const std::vector<std::vector<int32_t>>& prompts, const std::vector<Completion>& made,
                         const std::vector<double>& of_rows, bool truncated_out, int64_t multiple)
    : rows(std::ssize(prompts)), advantages(of_rows.begin(), of_rows.end()) {
  for (size_t r = 0; r < prompts.size(); ++r)
    tokens = std::max(tokens, std::ssize(prompts[r]) + std::ssize(made[r].tokens) - 1);
  tokens = (tokens + multiple - 1) / multiple * multiple;
  const auto all = static_cast<size_t>(rows * tokens);
  ids.assign(all, 0);
  target.assign(all, -1);
  old.assign(all, 0);
  for (size_t r = 0; r < prompts.size(); ++r) {
    const std::vector<int32_t>&prompt = prompts[r], &completion = made[r].tokens;
    const size_t begin = r * static_cast<size_t>(tokens);
    std::ranges::copy(prompt, ids.begin() + static_cast<std::ptrdiff_t>(begin));
    for (size_t i = 0; i < completion.size(); ++i) {
      const size_t place = begin + prompt.size() - 1 + i;  // whose successor it is
      if (i + 1 < completion.size()) ids[place + 1] = completion[i];
      if (truncated_out && !made[r].ended) continue;
      target[place] = completion[i];
      old[place] = static_cast<float>(made[r].log_probabilities[i]);
    }
  }
}

void PolicyBatch::give(Gradients& to, int64_t first, int64_t count, bool with_reference) const {
  const int64_t at = first * tokens;
  to.set("tokens", {DType::I32, {count, tokens}, ids.data() + at});
  to.set("target", {DType::I32, {count, tokens}, target.data() + at});
  to.set("old", {DType::F32, {count, tokens}, old.data() + at});
  to.set("advantage", {DType::F32, {count, 1}, advantages.data() + first});
  if (with_reference) to.set("reference", {DType::F32, {count, tokens}, reference.data() + at});
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
  const auto n = static_cast<double>(judged.size());
  double reward = 0, squares = 0, right = 0, tokens = 0, truncated = 0;
  int64_t flat = 0;
  for (size_t r = 0; r < judged.size(); ++r) {
    reward += judged[r].reward / n;
    right += judged[r].right / n;
    tokens += static_cast<double>(made[r].tokens.size()) / n;
    truncated += !made[r].ended / n;
    const size_t first = r / static_cast<size_t>(group) * static_cast<size_t>(group);
    if (r != first) continue;
    const auto of_group = std::span(judged).subspan(first, static_cast<size_t>(group));
    flat += std::ranges::all_of(of_group, [&](const Judgement& j) { return j.reward == judged[first].reward; });
  }
  for (const Judgement& j : judged) squares += (j.reward - reward) * (j.reward - reward) / n;
  metrics["reward"] = reward;
  metrics["reward_std"] = std::sqrt(squares);
  metrics["exact_match"] = right;
  metrics["flat_groups"] = static_cast<double>(flat) * static_cast<double>(group) / n;
  metrics["tokens"] = tokens;
  metrics["truncated"] = truncated;
}

}  // namespace tenon::train
