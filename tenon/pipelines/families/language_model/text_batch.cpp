#include "tenon/pipelines/families/language_model/text_batch.h"

#include <algorithm>
#include <array>
#include <bit>

#include "tenon/core/clock.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon {
namespace {

// Tokens of a prompt's run. What is left takes the smallest that holds it; more than the largest goes on in the next.
constexpr std::array<int64_t, 3> kChunks = {8, 64, 512};
constexpr int64_t kLeastCapacity = 256;
constexpr int64_t kMostRows = 1024;

// Rows that the cache has behind its last token: a run may end with tokens that mean nothing.
int64_t rows_for(int64_t tokens) { return tokens + kChunks.back(); }

}  // namespace

PrecisionPolicy decoder_precision(const NetworkOptions& o) {
  using Rule = PrecisionPolicy::Rule;
  PrecisionPolicy out = precision_of("decoder", o);
  const auto as_target_has_it = [&](Rule& r) { r = r == Rule::I8Weights && o.target.i8_blocks ? Rule::I8Blocks : r; };
  as_target_has_it(out.rule);
  for (PrecisionPolicy::Exception& e : out.exceptions) as_target_has_it(e.rule);
  return out;
}

bool folds_scales(const NetworkOptions& o) {
  return o.fold_scales && !decoder_precision(o).follows(PrecisionPolicy::Rule::I8Blocks);
}

nn::Precision decoder_types(const NetworkOptions& o) {
  const bool blocks = decoder_precision(o).rule == PrecisionPolicy::Rule::I8Blocks;
  return {o.precision.act, blocks ? DType::F32 : o.precision.weight};
}

PlanOptions TextSetup::plan_options(const char* name) const {
  PlanOptions o;
  o.name = name;
  o.fusion = networks.fusion;
  o.target = networks.target;
  o.precision = decoder_precision(networks);
  o.fold_scales = folds_scales(networks);
  return o;
}

DecoderBatch::Text::Text(int64_t number, TextRequest r, OnText f, const ByteLevelTokenizer& tokenizer)
    : id(number), request(std::move(r)), each(std::move(f)), stream(tokenizer, request.stop), seen(request.prompt) {}

DecoderBatch::DecoderBatch(std::shared_ptr<const TextSetup> setup, int64_t rows, bool reuse)
    : setup_(std::move(setup)), reuse_(reuse) {
  TENON_CHECK(Usage, rows >= 1 && rows <= kMostRows, "batch")
      << rows << " texts side by side: expected 1 to " << kMostRows;
  stream_ = setup_->backend->make_stream();
  slots_.resize(static_cast<size_t>(rows));
}

// ---- texts ----------------------------------------------------------------------------------------------------------

void DecoderBatch::check(const TextRequest& r) const {
  const int64_t vocabulary = setup_->model->config().vocabulary, context = setup_->context;
  check_sampling(r.sampling);
  TENON_CHECK(Usage, !r.prompt.empty(), "prompt") << "has no tokens: there is nothing to continue";
  for (const int32_t id : r.prompt)
    TENON_CHECK(Usage, id >= 0 && id < vocabulary, "prompt")
        << "token " << id << " is outside the model's vocabulary of " << vocabulary;
  TENON_CHECK(Usage, r.slide ? context > 1 : std::ssize(r.prompt) < context, "prompt")
      << r.prompt.size() << " tokens leave no room for a text: the context has " << context;
  TENON_CHECK(Usage, r.max_tokens >= 0, "max tokens") << r.max_tokens << ": expected 0 (the context's end) or more";
}

int64_t DecoderBatch::submit(TextRequest request, OnText each) {
  TENON_CHECK(Usage, !stepping_, "batch") << "is writing: a text's callback cannot submit another";
  check(request);
  waiting_.push_back(
      std::make_unique<Text>(submitted_, std::move(request), std::move(each), setup_->model->tokenizer()));
  return submitted_++;
}

bool DecoderBatch::cancel(int64_t id) {
  TENON_CHECK(Usage, !stepping_, "batch") << "is writing: a text's callback cannot cancel";
  TENON_CHECK(Usage, id >= 0 && id < submitted_, "batch")
      << "there is no text " << id << " to cancel: " << submitted_ << " were submitted, from 0";
  const auto stop = [this](std::unique_ptr<Text>& text) {
    text->out.text += text->stream.finish();
    text->out.end = TextEnd::Cancelled;
    end(std::move(text));
    return true;
  };
  for (size_t r = 0; r < slots_.size(); ++r) {
    Slot& slot = slots_[r];
    if (!slot.text || slot.text->id != id) continue;
    slot.reading.clear();
    loop_->leave(r);
    return stop(slot.text);
  }
  const auto found = std::ranges::find_if(waiting_, [&](const auto& text) { return text->id == id; });
  if (found == waiting_.end()) return false;
  stop(*found);
  waiting_.erase(found);
  return true;
}

bool DecoderBatch::busy() const {
  return !waiting_.empty() || !ended_.empty() ||
         std::ranges::any_of(slots_, [](const Slot& s) { return s.text != nullptr; });
}

std::vector<EndedText> DecoderBatch::step() {
  TENON_CHECK(Usage, !stepping_, "batch") << "is writing: a text's callback cannot step";
  stepping_ = true;
  try {
    advance();
  } catch (...) {
    stepping_ = false;
    drop_all();
    throw;
  }
  stepping_ = false;
  return std::exchange(ended_, {});
}

void DecoderBatch::drop_all() {
  waiting_.clear();
  ended_.clear();
  for (Slot& s : slots_) {
    s.text.reset();
    s.reading.clear();
  }
  if (loop_) loop_->end_all();
}

void DecoderBatch::advance() {
  for (size_t r = 0; r < slots_.size() && !waiting_.empty(); ++r)
    if (!slots_[r].text) admit(r);
  // The text that came first: its prompt is read to the end before another's.
  size_t first = slots_.size();
  for (size_t r = 0; r < slots_.size(); ++r)
    if (!slots_[r].reading.empty() && (first == slots_.size() || slots_[r].text->id < slots_[first].text->id))
      first = r;
  if (first < slots_.size()) read_chunk(first);
  if (loop_ && loop_->going()) loop_->step([this](size_t r, const SampledToken& t) { return take(r, t); });
  for (size_t r = 0; r < slots_.size(); ++r)
    if (slots_[r].text && slots_[r].reading.empty() && !loop_->going(r)) go_on(r);
}

void DecoderBatch::admit(size_t row) {
  Slot& slot = slots_[row];
  std::unique_ptr<Text> text = std::move(waiting_.front());
  waiting_.pop_front();
  const TextRequest& r = text->request;
  const int64_t context = setup_->context;
  std::vector<int32_t> tokens = std::ssize(r.prompt) < context ? r.prompt : last_half(r.prompt);
  const int64_t room = context - std::ssize(tokens);
  text->begin = Clock::now();
  text->prompt = std::ssize(tokens);
  text->most = r.max_tokens <= 0 ? room : r.slide ? r.max_tokens : std::min(r.max_tokens, room);
  try {
    reserve(std::min({text->prompt + text->most, text->prompt + kLeastCapacity, context}));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Memory) throw;
    return end(std::move(text), e);
  }
  if (!reuse_) slot.cached.clear();
  slot.text = std::move(text);
  read(row, std::move(tokens));
  slot.text->out.reused = std::ssize(slot.cached);
}

// Begins to put these tokens into the row, but for what is there of their beginning. Until it joins, the row's runs
// write where its first one will.
void DecoderBatch::read(size_t row, std::vector<int32_t> tokens) {
  Slot& slot = slots_[row];
  slot.last = tokens.back();
  loop_->park(row, std::ssize(tokens) - 1);
  const std::span<const int32_t> front(tokens.data(), tokens.size() - 1);
  slot.cached.resize(static_cast<size_t>(std::ranges::mismatch(slot.cached, front).in1 - slot.cached.begin()));
  slot.reading = std::move(tokens);
}

void DecoderBatch::read_chunk(size_t row) {
  check_stop();
  Slot& slot = slots_[row];
  const std::span<const int32_t> left =
      std::span<const int32_t>(slot.reading).first(slot.reading.size() - 1).subspan(slot.cached.size());
  if (!left.empty()) {
    const auto enough = std::ranges::find_if(kChunks, [&](int64_t n) { return n >= std::ssize(left); });
    const int64_t chunk = enough == kChunks.end() ? kChunks.back() : *enough;
    const std::span<const int32_t> now = left.first(std::min(left.size(), static_cast<size_t>(chunk)));
    std::vector<int32_t> ids(now.begin(), now.end());
    ids.resize(static_cast<size_t>(chunk));
    const auto position = static_cast<int32_t>(slot.cached.size());
    Prompt& run = prompt(chunk, row);
    Executable& e = run.executable;
    e.set("tokens", HostView{DType::I32, {1, chunk}, ids.data()});
    e.set("position", HostView{DType::I32, {1}, &position});
    for (const Phase& p : e.plan().phases)
      if (!run.ran || p.rate == Rate::Step) e.enqueue(p.rate);
    run.ran = true;
    slot.cached.insert(slot.cached.end(), now.begin(), now.end());
  }
  if (slot.cached.size() + 1 == slot.reading.size()) {
    slot.reading.clear();
    join(row);
  }
}

void DecoderBatch::join(size_t row) {
  const Slot& slot = slots_[row];
  const Text& t = *slot.text;
  DecodeRow as;
  as.token = slot.last;
  as.position = std::ssize(slot.cached);
  as.most = std::min(t.most - t.count(), std::min(capacity_, setup_->context - 1) - as.position);
  as.sampling = t.request.sampling;
  as.seed = t.request.seed;
  as.draw = t.prompt + t.count();
  as.seen = t.seen;
  as.stops = stops(t.request);
  loop_->join(row, as);
}

// Makes room behind a full row, whose text is to go on.
void DecoderBatch::go_on(size_t row) {
  Slot& slot = slots_[row];
  if (std::ssize(slot.cached) + 1 >= setup_->context) {  // only if it slides
    std::vector<int32_t> all = std::exchange(slot.cached, {});
    all.push_back(slot.last);
    return read(row, last_half(all));
  }
  try {
    reserve(std::min(2 * capacity_, setup_->context));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Memory) throw;
    if (slot.text) end(std::move(slot.text), e);
    return;
  }
  if (slot.text && !loop_->going(row)) join(row);
}

bool DecoderBatch::take(size_t row, const SampledToken& next) {
  Slot& slot = slots_[row];
  try {
    check_drawn(next, std::ssize(slot.cached) + 1);
  } catch (const Error& e) {
    end(std::move(slot.text), e);
    return false;
  }
  slot.cached.push_back(slot.last);
  slot.last = next.id;
  if (slot.text->count() == 0) slot.text->out.prompt_seconds = seconds_since(slot.text->begin);
  const bool goes_on = add(*slot.text, next);
  if (!goes_on) end(std::move(slot.text));
  return goes_on;
}

// Whether the text goes on behind this token.
bool DecoderBatch::add(Text& t, const SampledToken& next) const {
  const std::span<const int32_t> ends = stops(t.request);
  const bool end = std::ranges::find(ends, next.id) != ends.end();
  TextToken token{next.id, next.log_probability, end ? "" : t.stream.push(next.id)};
  const bool last = end || t.stream.stopped() || t.count() + 1 == t.most;
  if (last) token.text += t.stream.finish();
  t.out.text += token.text;
  if (t.each) t.each(token);
  t.out.tokens.push_back(std::move(token));
  t.seen.push_back(next.id);
  t.out.end = end                              ? TextEnd::StopToken
              : t.stream.stopped()             ? TextEnd::StopString
              : t.most == t.request.max_tokens ? TextEnd::MaxTokens
                                               : TextEnd::Context;
  return !last;
}

void DecoderBatch::end(std::unique_ptr<Text> text, std::optional<Error> error) {
  if (text->count() > 0) text->out.token_seconds = seconds_since(text->begin) - text->out.prompt_seconds;
  ended_.push_back({text->id, std::move(text->out), std::move(error)});
}

std::span<const int32_t> DecoderBatch::stops(const TextRequest& r) const {
  return r.ignore_stop_ids ? std::span<const int32_t>() : std::span<const int32_t>(setup_->model->stop_ids());
}

std::vector<int32_t> DecoderBatch::last_half(const std::vector<int32_t>& tokens) const {
  return {tokens.end() - setup_->context / 2, tokens.end()};
}

// ---- memory ---------------------------------------------------------------------------------------------------------

std::vector<Buffer> DecoderBatch::caches() const {
  const DecoderConfig& c = setup_->model->config();
  std::vector<Buffer> out;
  for (int64_t i = 0; i < c.layers; ++i)
    for (const char* part : {".k", ".v"}) {
      Buffer b;
      b.name = "cache." + std::to_string(i) + part;
      b.dtype = setup_->networks.precision.act;
      b.shape = {std::ssize(slots_) * rows_for(capacity_), c.key_heads, c.head_width};
      b.role = BufferRole::State;
      b.bytes = b.shape.numel() * size_of(b.dtype);
      out.push_back(std::move(b));
    }
  return out;
}

// What the first loop takes beside its caches, and pieces of prompts with it: activations, states, and weights that are
// not there yet. A loop that is there gives its own back before the next is made.
int64_t DecoderBatch::beside_caches(int64_t tokens) const {
  if (capacity_) return 0;
  const int64_t row = setup_->model->config().cache_bytes(setup_->networks.precision.act);
  int64_t out = plan_memory(plan_step(step_shape(tokens)), *setup_->store).needed();
  out -= std::ssize(slots_) * rows_for(tokens) * row;
  for (const int64_t piece : kChunks) {
    const MemoryPlan memory = plan_memory(plan_piece(piece, tokens), *setup_->store);
    out += memory.arena + memory.scratch + memory.kept;
  }
  return out;
}

void DecoderBatch::check_fits(int64_t tokens) const {
  const auto rows = std::ssize(slots_);
  const int64_t row = setup_->model->config().cache_bytes(setup_->networks.precision.act);
  const int64_t own = capacity_ ? rows * rows_for(capacity_) * row : 0, bytes = rows * rows_for(tokens) * row;
  const int64_t free = setup_->backend->memory_available() + own, beside = beside_caches(tokens);
  const int64_t fits = std::max<int64_t>((free - beside) / (rows * row) - kChunks.back(), 0);
  TENON_CHECK(Memory, bytes + beside <= free, "context")
      << tokens << " tokens" << (rows > 1 ? " of " + std::to_string(rows) + " texts side by side" : "") << " take "
      << bytes << " bytes of cache"
      << (beside ? " beside " + std::to_string(beside) + " of weights and activations" : "") << ", and " << free
      << " are free: at most " << fits << " tokens fit";
}

// Room for this many tokens in every row. What the rows hold stays, through the host's memory, and texts go on. If
// there is no memory for it, everything is as it was.
void DecoderBatch::reserve(int64_t tokens) {
  if (tokens <= capacity_) return;
  const auto wanted = static_cast<uint64_t>(std::max(tokens, kLeastCapacity));
  const int64_t next = std::min(static_cast<int64_t>(std::bit_ceil(wanted)), setup_->context), before = capacity_;
  check_fits(next);
  if (loop_) loop_->settle([this](size_t r, const SampledToken& t) { return take(r, t); });
  Held held;
  for (size_t r = 0; r < slots_.size(); ++r) held.writing.push_back(loop_ && loop_->going(r));
  if (loop_)
    for (const Buffer& b : caches()) {
      held.caches.emplace_back(static_cast<size_t>(b.bytes));
      setup_->backend->copy_out(*stream_, held.caches.back().data(), states_->get(b).get(), b.bytes);
    }
  try {
    rebuild(next, held);
  } catch (const Error& e) {
    if (!before) {
      forget(e);
      throw;
    }
    try {
      rebuild(before, held);
    } catch (const Error&) {
      forget(e);
    }
    throw;
  }
}

// A loop over caches of this capacity, with what was held of the ones before.
void DecoderBatch::rebuild(int64_t capacity, const Held& held) {
  prompts_.clear();
  loop_.reset();
  capacity_ = capacity;
  states_ = std::make_shared<Buffers>(setup_->backend);
  make_loop();
  const auto rows = slots_.size();
  const std::vector<Buffer> caches_now = caches();
  for (size_t i = 0; i < held.caches.size(); ++i) {
    const auto before = held.caches[i].size() / rows, now = static_cast<size_t>(caches_now[i].bytes) / rows;
    auto* to = static_cast<std::byte*>(states_->get(caches_now[i]).get());
    for (size_t r = 0; r < rows; ++r)
      setup_->backend->copy_in(*stream_, to + r * now, held.caches[i].data() + r * before,
                               static_cast<int64_t>(before));
  }
  stream_->synchronize();
  for (size_t r = 0; r < rows; ++r) {
    if (held.writing[r])
      join(r);
    else if (!slots_[r].reading.empty())
      loop_->park(r, std::ssize(slots_[r].reading) - 1);
  }
}

// No loop, no caches; texts under way end with the error.
void DecoderBatch::forget(const Error& error) {
  prompts_.clear();
  loop_.reset();
  capacity_ = 0;
  states_ = std::make_shared<Buffers>(setup_->backend);
  for (Slot& s : slots_) {
    s.cached.clear();
    s.reading.clear();
    if (s.text) end(std::move(s.text), error);
  }
}

DecodeStepShape DecoderBatch::step_shape(int64_t tokens) const {
  return {.rows = std::ssize(slots_), .capacity = rows_for(tokens), .stops = std::ssize(setup_->model->stop_ids())};
}

Plan DecoderBatch::plan_step(const DecodeStepShape& shape) const {
  return plan_decode_step(setup_->model->config(), shape, decoder_types(setup_->networks),
                          setup_->plan_options("decode"));
}

// Of so many tokens of a prompt, over a cache of one row for `capacity` tokens.
Plan DecoderBatch::plan_piece(int64_t tokens, int64_t capacity) const {
  DecoderShape shape;
  shape.tokens = tokens;
  shape.capacity = rows_for(capacity);
  return plan_prompt(setup_->model->config(), shape, decoder_types(setup_->networks), setup_->plan_options("prompt"));
}

void DecoderBatch::make_loop() {
  loop_ = std::make_unique<DecodeLoop>(
      step_shape(capacity_), setup_->model->config().vocabulary,
      [this](const DecodeStepShape& shape) { return plan_step(shape); }, setup_->store, stream_, states_);
}

// The run of so many tokens of a prompt, made for a cache of one row, in this row of the cache.
DecoderBatch::Prompt& DecoderBatch::prompt(int64_t tokens, size_t row) {
  auto found = prompts_.find(tokens);
  if (found == prompts_.end()) {
    Plan plan = plan_piece(tokens, capacity_);
    for (Buffer& b : plan.buffers) b.outside = b.outside || b.role == BufferRole::State;
    found =
        prompts_
            .emplace(tokens, Prompt{Executable(std::move(plan), setup_->store, caches_of(row), stream_, states_), row})
            .first;
  } else if (found->second.row != row) {
    found->second.executable.wait();
    found->second.executable.bind(caches_of(row));
    found->second.row = row;
  }
  return found->second;
}

std::map<std::string, void*> DecoderBatch::caches_of(size_t row) const {
  std::map<std::string, void*> out;
  for (const Buffer& b : caches())
    out[b.name] = static_cast<std::byte*>(states_->get(b).get()) + row * (static_cast<size_t>(b.bytes) / slots_.size());
  return out;
}

}  // namespace tenon
