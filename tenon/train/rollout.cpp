#include "tenon/train/rollout.h"

#include <algorithm>
#include <span>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/expr/ops.h"
#include "tenon/nn/loss.h"
#include "tenon/pipelines/sampling.h"
#include "tenon/plan/plan.h"

namespace tenon::train {
namespace {

constexpr int64_t kPromptStep = 16;  // prompts are read in plans of multiples of this many tokens

// A decoder's plan with the sum that probabilities are made of. Nothing is folded into weights: what a layer
// multiplies is then what training multiplies, bit for bit, and an update packs no weights anew for it.
Plan plan_rollout(const DecoderConfig& c, const DecoderShape& shape, nn::Precision p, const Target& target) {
  Graph g;
  const Decoder d = decoder(g, c, shape, p);
  const Expr logits = reshape(d.logits, {shape.batch, c.vocabulary});
  std::vector<Result> results{{"logits", logits}, {"lse", nn::log_sum_exp(logits)}};
  for (const auto& [name, value] : d.states) results.push_back({name, value});
  PlanOptions options;
  options.name = "rollout";
  options.fold_scales = false;
  options.target = target;
  return make_plan(results, options);
}

int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

Rollout::Rollout(std::shared_ptr<WeightStore> store, DecoderConfig config, nn::Precision precision)
    : store_(std::move(store)),
      config_(std::move(config)),
      precision_(precision),
      stream_(store_->backend()->make_stream()) {}

void Rollout::reserve(int64_t rows, int64_t capacity) {
  if (rows == rows_ && capacity <= capacity_) return;
  executables_.clear();
  states_ = std::make_shared<Buffers>(store_->backend());
  rows_ = rows;
  capacity_ = capacity;
}

Executable& Rollout::executable(int64_t rows, int64_t tokens) {
  Prepared& p = executables_[tokens];
  if (!p.executable) {
    DecoderShape shape;
    shape.batch = rows;
    shape.tokens = tokens;
    shape.capacity = capacity_;
    p.executable = std::make_unique<Executable>(plan_rollout(config_, shape, precision_, store_->backend()->target()),
                                                store_, std::map<std::string, void*>{}, stream_, states_);
  }
  return *p.executable;
}

Rollout::Scores Rollout::run(int64_t rows, int64_t tokens, const std::vector<int32_t>& ids,
                             const std::vector<int32_t>& positions, const std::vector<int32_t>& chosen) {
  check_stop("rollout");
  Executable& e = executable(rows, tokens);
  e.set("tokens", HostView{DType::I32, {rows, tokens}, ids.data()});
  e.set("position", HostView{DType::I32, {rows}, positions.data()});
  if (tokens > 1) e.set("row", HostView{DType::I32, {rows}, chosen.data()});
  bool& ran = executables_.at(tokens).ran;
  if (ran)
    e.run(Rate::Step);
  else
    e.run_all();
  ran = true;
  return {e.get("logits"), e.get("lse")};
}

std::vector<Completion> Rollout::complete(const std::vector<std::vector<int32_t>>& prompts,
                                          const std::vector<uint64_t>& seeds, const RolloutOptions& options) {
  const auto rows = static_cast<int64_t>(prompts.size());
  TENON_CHECK(Usage, rows > 0 && seeds.size() == prompts.size() && options.most > 0, "rollout")
      << rows << " prompts with " << seeds.size() << " seeds, completions of " << options.most << " tokens";
  int64_t longest = 0;
  for (const std::vector<int32_t>& p : prompts) {
    TENON_CHECK(Usage, !p.empty(), "rollout") << "a prompt has no tokens";
    longest = std::max(longest, std::ssize(p));
  }
  const int64_t width = rounded_up(longest, kPromptStep);
  TENON_CHECK(Usage, longest + options.most <= config_.positions, "rollout")
      << "a prompt of " << longest << " tokens and a completion of " << options.most << " pass the model's "
      << config_.positions << " positions";
  reserve(rows, width + rounded_up(options.most, kPromptStep));
  std::vector<int32_t> ids(static_cast<size_t>(rows * width)), positions(prompts.size()), chosen(prompts.size());
  std::vector<TokenSampler> samplers;
  for (size_t r = 0; r < prompts.size(); ++r) {
    std::ranges::copy(prompts[r], ids.begin() + static_cast<std::ptrdiff_t>(r) * width);
    chosen[r] = static_cast<int32_t>(static_cast<int64_t>(r) * width + std::ssize(prompts[r]) - 1);
    Sampling s;
    s.draw = !options.greedy;
    samplers.emplace_back(s, seeds[r]);
  }
  std::vector<Completion> out(prompts.size());
  Scores scores = run(rows, width, ids, positions, chosen);
  std::vector<int32_t> next(prompts.size());
  for (int64_t made = 0;; ++made) {
    bool going = false;
    for (size_t r = 0; r < prompts.size(); ++r) {
      positions[r] = static_cast<int32_t>(std::ssize(prompts[r]) + std::ssize(out[r].tokens));
      if (out[r].ended) continue;  // its row goes on over what nobody reads
      const auto logits =
          std::span(scores.logits)
              .subspan(r * static_cast<size_t>(config_.vocabulary), static_cast<size_t>(config_.vocabulary));
      const SampledToken t = samplers[r].next(logits, positions[r]);
      out[r].tokens.push_back(next[r] = t.id);
      const float nll = scores.lse[r] - logits[static_cast<size_t>(t.id)];
      out[r].log_probabilities.push_back(-static_cast<double>(nll));
      out[r].ended = std::ranges::find(options.stop_ids, t.id) != options.stop_ids.end();
      going = going || !out[r].ended;
    }
    if (!going || made + 1 == options.most) return out;
    scores = run(rows, 1, next, positions, {});
  }
}

}  // namespace tenon::train
