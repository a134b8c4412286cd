#include "tenon/pipelines/text_generator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <map>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/pipelines/adapted_weights.h"
#include "tenon/pipelines/text_stream.h"
#include "tenon/runtime/executable.h"

namespace tenon {
namespace {
using Clock = std::chrono::steady_clock;

// Tokens of a run. What is left of a prompt takes the smallest that holds it; more than the largest goes on in the
// next.
constexpr std::array<int64_t, 4> kChunks = {1, 8, 64, 512};
constexpr int64_t kLeastCapacity = 256;

double seconds_behind(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class DecoderGenerator : public TextGenerator {
 public:
  DecoderGenerator(std::shared_ptr<const LanguageModel> model, TextOptions options)
      : model_(std::move(model)),
        options_(std::move(options)),
        backend_(make_backend(options_.device, {options_.threads})) {
    const std::vector<DType> types = backend_->types();
    const DType t = options_.type.value_or(types.front());
    TENON_CHECK(Usage, std::ranges::find(types, t) != types.end(), "type")
        << name_of(t) << " is not computed in by " << backend_->name();
    TENON_CHECK(Usage, backend_->computes(), "device") << backend_->name() << " computes nothing: no text comes of it";
    const int64_t positions = model_->config().positions;
    TENON_CHECK(Usage, options_.context >= 0 && options_.context <= positions, "context")
        << options_.context << " tokens: the model has " << positions << " positions";
    context_ = options_.context ? options_.context : positions;
    networks_ = {.precision = {t, t},
                 .fusion = options_.fusion,
                 .fold_scales = options_.fold_scales,
                 .target = backend_->target()};
    std::unique_ptr<WeightSource> weights = model_->weights();
    if (!options_.adapter.empty()) weights = with_adapter(std::move(weights), model_->shapes(), options_.adapter);
    store_ = std::make_shared<WeightStore>(backend_, std::move(weights));
  }

  TextResult generate(const TextRequest& r, const OnText& each) override {
    check(r);
    const std::vector<int32_t> read = std::ssize(r.prompt) < context_ ? r.prompt : last_half(r.prompt);
    const int64_t prompt = std::ssize(read), room = context_ - prompt;
    const int64_t most = r.max_tokens <= 0 ? room : r.slide ? r.max_tokens : std::min(r.max_tokens, room);
    TokenSampler sampler(r.sampling, r.seed);
    TextStream stream(model_->tokenizer(), r.stop);
    TextResult out;
    const auto begin = Clock::now();
    reserve(std::min({prompt + most, prompt + kLeastCapacity, context_}));
    std::vector<float> logits = read_prompt(read, out.reused);
    out.prompt_seconds = seconds_behind(begin);
    for (const int32_t id : r.prompt) sampler.saw(id);
    while (static_cast<int64_t>(out.tokens.size()) < most) {
      check_stop();
      const SampledToken next = sampler.next(logits, prompt + static_cast<int64_t>(out.tokens.size()));
      const std::vector<int32_t>& stops = model_->stop_ids();
      const bool end = !r.ignore_stop_ids && std::ranges::find(stops, next.id) != stops.end();
      TextToken token{next.id, next.log_probability, end ? "" : stream.push(next.id)};
      const bool last = end || stream.stopped() || static_cast<int64_t>(out.tokens.size()) + 1 == most;
      if (last) token.text += stream.finish();
      out.text += token.text;
      if (each) each(token);
      out.tokens.push_back(std::move(token));
      if (end || stream.stopped()) {
        out.end = end ? TextEnd::StopToken : TextEnd::StopString;
        out.token_seconds = seconds_behind(begin) - out.prompt_seconds;
        return out;
      }
      if (last) break;
      sampler.saw(next.id);
      logits = read_token(next.id);
    }
    out.end = most == r.max_tokens ? TextEnd::MaxTokens : TextEnd::Context;
    out.token_seconds = seconds_behind(begin) - out.prompt_seconds;
    return out;
  }

  const LanguageModel& model() const override { return *model_; }
  const Backend& backend() const override { return *backend_; }
  DType type() const override { return networks_.precision.act; }
  int64_t context() const override { return context_; }

 private:
  void check(const TextRequest& r) const {
    check_sampling(r.sampling);
    TENON_CHECK(Usage, !r.prompt.empty(), "prompt") << "has no tokens: there is nothing to continue";
    for (const int32_t id : r.prompt)
      TENON_CHECK(Usage, id >= 0 && id < model_->config().vocabulary, "prompt")
          << "token " << id << " is outside the model's vocabulary of " << model_->config().vocabulary;
    TENON_CHECK(Usage, r.slide ? context_ > 1 : std::ssize(r.prompt) < context_, "prompt")
        << r.prompt.size() << " tokens leave no room for a text: the context has " << context_;
    TENON_CHECK(Usage, r.max_tokens >= 0, "max tokens") << r.max_tokens << ": expected 0 (the context's end) or more";
  }

  std::vector<int32_t> last_half(const std::vector<int32_t>& tokens) const {
    return {tokens.end() - context_ / 2, tokens.end()};
  }

  // Rows that the cache has behind its last token: a run may end with tokens that mean nothing.
  static int64_t rows_for(int64_t tokens) { return tokens + kChunks.back(); }

  // A cache for this many tokens; what a smaller one holds is read anew.
  void reserve(int64_t tokens) {
    if (tokens <= capacity_) return;
    const auto wanted = static_cast<uint64_t>(std::max(tokens, kLeastCapacity));
    const int64_t next = std::min(static_cast<int64_t>(std::bit_ceil(wanted)), context_);
    const int64_t row = model_->config().cache_bytes(type()), bytes = rows_for(next) * row;
    executables_.clear();
    states_.reset();
    const int64_t free = backend_->memory_available(), fits = std::max<int64_t>(free / row - kChunks.back(), 0);
    TENON_CHECK(Memory, bytes <= free, "context") << next << " tokens take " << bytes << " bytes of cache, and " << free
                                                  << " are free: at most " << fits << " tokens fit";
    cached_.clear();
    capacity_ = next;
    states_ = std::make_shared<Buffers>(backend_);
  }

  Executable& executable(int64_t tokens) {
    const auto found = executables_.find(tokens);
    if (found != executables_.end()) return found->second;
    DecoderShape shape;
    shape.tokens = tokens;
    shape.capacity = rows_for(capacity_);
    Plan plan = plan_decoder(model_->config(), shape, networks_);
    return executables_
        .emplace(std::piecewise_construct, std::forward_as_tuple(tokens),
                 std::forward_as_tuple(std::move(plan), store_, std::map<std::string, void*>{}, stream(), states_))
        .first->second;
  }

  std::shared_ptr<Stream> stream() {
    if (!stream_) stream_ = backend_->make_stream();
    return stream_;
  }

  static void set(Executable& e, const char* name, const Shape& shape, const std::vector<int32_t>& values) {
    e.set(name, HostView{DType::I32, shape, values.data()});
  }

  // The tokens behind what is cached, at most as many as the chunk has; the logits of the last are left in `e`.
  Executable& run(int64_t chunk, std::span<const int32_t> tokens) {
    const auto position = static_cast<int32_t>(cached_.size()), last = static_cast<int32_t>(tokens.size()) - 1;
    std::vector<int32_t> ids(tokens.begin(), tokens.end());
    ids.resize(static_cast<size_t>(chunk));
    const bool fresh = !executables_.contains(chunk);
    Executable& e = executable(chunk);
    set(e, "tokens", {1, chunk}, ids);
    set(e, "position", {1}, {position});
    if (chunk > 1) set(e, "row", {1}, {last});
    if (fresh)
      e.run_all();
    else
      e.run(Rate::Step);
    cached_.insert(cached_.end(), tokens.begin(), tokens.end());
    return e;
  }

  // Logits behind the prompt. What the cache holds of its beginning is not read again, but for the last token.
  std::vector<float> read_prompt(std::span<const int32_t> prompt, int64_t& reused) {
    const auto same = std::ranges::mismatch(cached_, prompt).in1 - cached_.begin();
    cached_.resize(std::min(static_cast<size_t>(same), prompt.size() - 1));
    reused = static_cast<int64_t>(cached_.size());
    for (;;) {
      check_stop();
      const std::span<const int32_t> left = prompt.subspan(cached_.size());
      const auto enough = std::ranges::find_if(kChunks, [&](int64_t n) { return n >= std::ssize(left); });
      const int64_t chunk = enough == kChunks.end() ? kChunks.back() : *enough;
      Executable& e = run(chunk, left.first(std::min(left.size(), static_cast<size_t>(chunk))));
      if (cached_.size() == prompt.size()) return e.get("logits");
    }
  }

  std::vector<float> read_token(int32_t id) {
    const bool full = std::ssize(cached_) + 1 >= context_;  // only a context that slides comes this far
    if (full || std::ssize(cached_) >= capacity_) {
      std::vector<int32_t> all = cached_;
      all.push_back(id);
      int64_t ignored = 0;
      if (full) return read_prompt(last_half(all), ignored);
      reserve(std::min(2 * capacity_, context_));
      return read_prompt(all, ignored);
    }
    return run(1, std::array{id}).get("logits");
  }

  std::shared_ptr<const LanguageModel> model_;
  TextOptions options_;
  std::shared_ptr<Backend> backend_;
  NetworkOptions networks_;
  int64_t context_ = 0, capacity_ = 0;
  std::shared_ptr<WeightStore> store_;
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<Buffers> states_;
  std::map<int64_t, Executable> executables_;  // by tokens of a run
  std::vector<int32_t> cached_;                // what the cache holds, token by token
};

}  // namespace

std::string_view finish_reason(TextEnd end) {
  return end == TextEnd::StopToken || end == TextEnd::StopString ? "stop" : "length";
}

std::unique_ptr<TextGenerator> make_text_generator(std::shared_ptr<const LanguageModel> model, TextOptions options) {
  return std::make_unique<DecoderGenerator>(std::move(model), std::move(options));
}

Plan plan_decoder(const DecoderConfig& c, const DecoderShape& shape, const NetworkOptions& options) {
  Graph g;
  const Decoder d = decoder(g, c, shape, options.precision);
  std::vector<Result> results{{"logits", d.logits}};
  for (const auto& [name, value] : d.states) results.push_back({name, value});
  PlanOptions o;
  o.name = "decoder";
  o.fusion = options.fusion;
  o.fold_scales = options.fold_scales;
  o.anchors_alone = options.anchors_alone;
  o.target = options.target;
  return make_plan(results, o);
}

}  // namespace tenon
