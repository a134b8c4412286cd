#include "tenon/train/rollout.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/core/not_null.h"
#include "tenon/core/stop.h"
#include "tenon/pipelines/decoder_plans.h"
#include "tenon/pipelines/text_generator.h"

namespace tenon::train {
namespace {

constexpr int64_t kPromptStep = 16;  // plans for prompts have a multiple of this many tokens

// Nothing is folded into weights: a layer then multiplies the same numbers as in training, bit for bit, and an update
// need not repack weights for it.
PlanOptions rollout_options(const WeightStore& store) {
  PlanOptions options;
  options.name = "rollout";
  options.fold_scales = false;
  options.target = store.backend()->target();
  return options;
}

int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

Rollout::Rollout(std::shared_ptr<WeightStore> store, DecoderConfig config, nn::Precision precision)
    : store_(not_null(std::move(store), "weights")),
      config_(std::move(config)),
      precision_(precision),
      stream_(store_->backend()->make_stream()),
      arena_(std::make_shared<Arena>(store_->backend())) {}

int64_t Rollout::capacity(int64_t longest, int64_t most) {
  return rounded_up(longest, kPromptStep) + rounded_up(most + 1, kPromptStep);
}

void Rollout::reserve(int64_t rows, int64_t capacity, int64_t stops) {
  if (rows == rows_ && capacity <= capacity_ && stops <= stops_) return;
  // The old caches go before new ones come. If making these fails, the next call makes them again.
  prompts_.clear();
  loop_.reset();
  rows_ = 0;
  states_ = std::make_shared<Buffers>(store_->backend());
  const DecodeStepShape shape{.rows = rows, .capacity = capacity, .stops = stops, .of_network = true};
  const auto plan = [c = config_, p = precision_, o = rollout_options(*store_)](const DecodeStepShape& s) {
    return plan_decode_step(c, s, p, o);
  };
  loop_ = std::make_unique<DecodeLoop>(shape, config_.vocabulary, plan, store_, stream_, states_);
  rows_ = rows;
  capacity_ = capacity;
  stops_ = stops;
}

// Reads prompts into the cache, at most `width` tokens of each.
void Rollout::read(const std::vector<std::vector<int32_t>>& prompts, int64_t width) {
  check_stop("rollout");
  std::vector<int32_t> ids(static_cast<size_t>(rows_ * width)), positions(prompts.size());
  for (size_t r = 0; r < prompts.size(); ++r)
    std::ranges::copy_n(prompts[r].begin(), std::min(std::ssize(prompts[r]), width),
                        ids.begin() + static_cast<std::ptrdiff_t>(r) * width);
  const bool fresh = !prompts_.contains(width);
  if (fresh) {
    DecoderShape shape;
    shape.batch = rows_;
    shape.tokens = width;
    shape.capacity = capacity_;
    prompts_.try_emplace(width, plan_prompt(config_, shape, precision_, rollout_options(*store_)), store_,
                         std::map<std::string, void*>{}, stream_, states_, arena_);
  }
  Executable& e = prompts_.at(width);
  e.set("tokens", HostView{DType::I32, {rows_, width}, ids.data()});
  e.set("position", HostView{DType::I32, {rows_}, positions.data()});
  if (fresh)
    e.run_all();
  else
    e.run(Rate::Step);
}

std::vector<Completion> Rollout::complete(const std::vector<std::vector<int32_t>>& prompts,
                                          const std::vector<uint64_t>& seeds, const RolloutOptions& options) {
  const auto rows = static_cast<int64_t>(prompts.size());
  TENON_CHECK(Usage, rows > 0 && seeds.size() == prompts.size() && options.most > 0, "rollout")
      << "expected prompts, a seed for each and completions of 1 token or more, got " << rows << " prompts, "
      << seeds.size() << " seeds and " << options.most << " tokens";
  int64_t longest = 0;
  for (const std::vector<int32_t>& p : prompts) {
    TENON_CHECK(Usage, !p.empty(), "rollout") << "a prompt has no tokens";
    longest = std::max(longest, std::ssize(p));
  }
  TENON_CHECK(Usage, options.most <= config_.positions - longest, "rollout")
      << "a prompt of " << longest << " tokens and a completion of " << options.most << " exceed the model's "
      << config_.positions << " positions";
  const int64_t width = rounded_up(longest - 1, kPromptStep);
  reserve(rows, capacity(longest, options.most), std::ssize(options.stop_ids));
  if (width > 0) read(prompts, width);
  std::vector<DecodeRow> texts(prompts.size());
  for (size_t r = 0; r < prompts.size(); ++r) {
    texts[r].token = prompts[r].back();
    texts[r].position = std::ssize(prompts[r]) - 1;
    texts[r].most = options.most;
    texts[r].sampling.draw = !options.greedy;
    texts[r].seed = seeds[r];
    texts[r].draw = std::ssize(prompts[r]);
    texts[r].stops = options.stop_ids;
  }
  std::vector<Completion> out(prompts.size());
  loop_->run(texts, [&](size_t r, const SampledToken& t) {
    out[r].tokens.push_back(t.id);
    out[r].log_probabilities.push_back(t.log_probability);
    out[r].ended = std::ranges::find(options.stop_ids, t.id) != options.stop_ids.end();
    return true;
  });
  return out;
}

}  // namespace tenon::train
