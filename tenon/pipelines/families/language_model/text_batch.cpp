#include "tenon/pipelines/families/language_model/text_batch.h"

#include <algorithm>

#include "tenon/core/clock.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/pipelines/families/language_model/cache_sizes.h"

namespace tenon {
namespace {
constexpr int64_t kMaxRows = 1024;

// No memory for longer texts, or more tokens than so many rows may have.
bool concerns_one_text(const Error& e) { return e.kind() == ErrorKind::Memory || e.kind() == ErrorKind::Usage; }
}  // namespace

int64_t TextSetup::page_bytes() const { return kCachePage * model->config().cache_bytes(networks.precision.act); }

DecoderBatch::Text::Text(int64_t number, TextRequest r, OnText f, const ByteLevelTokenizer& tokenizer)
    : id(number), request(std::move(r)), each(std::move(f)), stream(tokenizer, request.stop), seen(request.prompt) {}

DecoderBatch::DecoderBatch(std::shared_ptr<const TextSetup> setup, int64_t rows, bool reuse, int64_t tokens)
    : setup_(std::move(setup)), reuse_(reuse), max_pages_(setup_->cache_pages) {
  TENON_CHECK(Usage, rows >= 1 && rows <= kMaxRows, "batch")
      << "expected 1 to " << kMaxRows << " texts at a time, got " << rows;
  TENON_CHECK(Usage, tokens >= 0, "batch") << "a cache of " << tokens << " tokens: expected 0 (as many as fit) or more";
  if (tokens) {
    const int64_t pages = kOwnPages + table_pages(pages_for(tokens) * kCachePage);
    max_pages_ = max_pages_ ? std::min(max_pages_, pages) : pages;
  }
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
  TENON_CHECK(Usage, !r.slide || context > 1, "context") << context << ": a text that slides needs 2 tokens or more";
  TENON_CHECK(Usage, r.slide || std::ssize(r.prompt) < context, "prompt")
      << (r.prompt.size() == 1 ? "1 token leaves" : std::to_string(r.prompt.size()) + " tokens leave")
      << " no room for a text: the context has " << context;
  TENON_CHECK(Usage, r.max_tokens >= 0, "max tokens")
      << r.max_tokens << ": expected 0 (until the context is full) or more";
}

int64_t DecoderBatch::submit(TextRequest request, OnText each) {
  TENON_CHECK(Usage, !stepping_, "batch") << "a text's callback cannot submit another text";
  check(request);
  waiting_.push_back(
      std::make_unique<Text>(submitted_, std::move(request), std::move(each), setup_->model->tokenizer()));
  return submitted_++;
}

bool DecoderBatch::cancel(int64_t id) {
  TENON_CHECK(Usage, !stepping_, "batch") << "a text's callback cannot cancel a text";
  TENON_CHECK(Usage, id >= 0 && id < submitted_, "batch")
      << "no text " << id << " to cancel: " << submitted_ << " were submitted, numbered from 0";
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
    slot.aside.clear();
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
  TENON_CHECK(Usage, !stepping_, "batch") << "a text's callback cannot step the batch";
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
    s.aside.clear();
  }
  if (loop_) loop_->end_all();  // the next step returns the pages
}

void DecoderBatch::advance() {
  give_back_ended();
  take_up();
  const auto waits = [](const Slot& s) { return !s.aside.empty(); };
  for (size_t r = 0; r < slots_.size() && !waiting_.empty() && std::ranges::none_of(slots_, waits); ++r)
    if (!slots_[r].text && !slots_[r].spoiled) admit(r);
  // The earliest text: its prompt is read to the end before another's.
  size_t first = slots_.size();
  for (size_t r = 0; r < slots_.size(); ++r)
    if (!slots_[r].reading.empty() && slots_[r].aside.empty() &&
        (first == slots_.size() || slots_[r].text->id < slots_[first].text->id))
      first = r;
  if (first < slots_.size()) read_chunk(first);
  write();
  for (size_t r = 0; r < slots_.size(); ++r)
    if (slots_[r].text && slots_[r].reading.empty() && slots_[r].aside.empty() && !loop_->going(r)) go_on(r);
  give_back_ended();
}

// Advances the texts that have pages for it.
void DecoderBatch::write() {
  if (!loop_) return;
  for (const size_t r : by_age()) {
    if (!slots_[r].text || !loop_->going(r)) continue;
    const int64_t tokens = loop_->reach(r) + 1;
    if (!take_pages(r, tokens) && slots_[r].text && loop_->going(r)) cannot_go_on(r, tokens);
  }
  if (loop_ && loop_->going()) loop_->step([this](size_t r, const SampledToken& t) { return take(r, t); });
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
  slot.text = std::move(text);
  const int64_t wanted = wanted_tokens(slot.text->prompt, slot.text->most);
  const bool first = !loop_;
  try {
    const int64_t least = kOwnPages + pages_for(wanted) + pages_for(kChunks.back());
    reserve(wanted, size_.pages ? size_.pages : least, full_ ? 0 : wanted_pages());
  } catch (const Error& e) {
    if (first ? e.kind() != ErrorKind::Memory : !concerns_one_text(e)) throw;
    if (!loop_ || size_.capacity < wanted) {
      if (slot.text) end(std::move(slot.text), e);
      return;
    }
    full_ = true;
  }
  if (!reuse_) slot.cached.clear();
  read(row, std::move(tokens));
  slot.text->out.reused = std::ssize(slot.cached);
}

// Starts to read these tokens into the cache, except for a beginning that is there already. Until the row joins, its
// runs write outside any text.
void DecoderBatch::read(size_t row, std::vector<int32_t> tokens) {
  Slot& slot = slots_[row];
  slot.last = tokens.back();
  loop_->park(row, 0);
  loop_->give_pages(row, {});
  const std::span<const int32_t> front(tokens.data(), tokens.size() - 1);
  slot.cached.resize(static_cast<size_t>(std::ranges::mismatch(slot.cached, front).in1 - slot.cached.begin()));
  keep_pages(row, std::ssize(slot.cached));
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
    const int64_t tokens = std::ssize(slot.cached) + chunk;
    if (!take_pages(row, tokens)) {
      if (slot.text && by_age().front() == row) cannot_go_on(row, tokens);
      return;
    }
    const std::span<const int32_t> now = left.first(std::min(left.size(), static_cast<size_t>(chunk)));
    std::vector<int32_t> ids(now.begin(), now.end());
    ids.resize(static_cast<size_t>(chunk));
    const auto position = static_cast<int32_t>(slot.cached.size());
    Prompt& run = prompt(chunk);
    Executable& e = run.executable;
    std::vector<int32_t> pages = slot.pages;
    pages.resize(static_cast<size_t>(table_pages(size_.capacity)), kNobodysPage);
    e.set("pages", HostView{DType::I32, {1, std::ssize(pages)}, pages.data()});
    e.set("tokens", HostView{DType::I32, {1, chunk}, ids.data()});
    e.set("position", HostView{DType::I32, {1}, &position});
    for (const Phase& p : e.plan().phases)
      if (!run.ran || p.rate == Rate::Step) e.enqueue(p.rate);
    run.ran = true;
    slot.cached.insert(slot.cached.end(), now.begin(), now.end());
  }
  if (slot.cached.size() + 1 == slot.reading.size()) {
    slot.reading.clear();
    keep_pages(row, std::ssize(slot.cached));  // not the pages of padding tokens
    join(row);
  }
}

void DecoderBatch::join(size_t row) {
  const Slot& slot = slots_[row];
  const Text& t = *slot.text;
  DecodeRow as;
  as.token = slot.last;
  as.position = std::ssize(slot.cached);
  as.most = std::min(t.most - t.count(), std::min(size_.capacity, setup_->context - 1) - as.position);
  as.sampling = t.request.sampling;
  as.seed = t.request.seed;
  as.draw = t.prompt + t.count();
  as.seen = t.seen;
  as.stops = stops(t.request);
  loop_->join(row, as);
  loop_->give_pages(row, slot.pages);
}

// Makes room for a full row whose text is to continue.
void DecoderBatch::go_on(size_t row) {
  Slot& slot = slots_[row];
  if (std::ssize(slot.cached) + 1 >= setup_->context) {  // only if it slides
    std::vector<int32_t> all = std::exchange(slot.cached, {});
    all.push_back(slot.last);
    return read(row, last_half(all));
  }
  try {
    const bool full = std::ssize(slot.cached) >= size_.capacity;  // not if another row made room in the meantime
    if (full) reserve(std::min(2 * size_.capacity, setup_->context), 0, 0);
  } catch (const Error& e) {
    if (!concerns_one_text(e)) throw;
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
    slot.spoiled = true;
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

// Whether the text continues after this token.
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

}  // namespace tenon
