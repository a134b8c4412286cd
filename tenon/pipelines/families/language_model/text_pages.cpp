// The cache of a batch: ownership of its pages, and its size.
#include <algorithm>
#include <bit>

#include "tenon/core/beside.h"
#include "tenon/core/error.h"
#include "tenon/pipelines/families/language_model/cache_sizes.h"
#include "tenon/pipelines/families/language_model/text_batch.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon {

// ---- pages ----------------------------------------------------------------------------------------------------------

// Rows with texts, oldest first.
std::vector<size_t> DecoderBatch::by_age() const {
  std::vector<size_t> out;
  for (size_t r = 0; r < slots_.size(); ++r)
    if (slots_[r].text) out.push_back(r);
  std::ranges::sort(out, {}, [this](size_t r) { return slots_[r].text->id; });
  return out;
}

// Tokens to make room for, if a text may write `most` tokens after its prompt.
int64_t DecoderBatch::wanted_tokens(int64_t prompt, int64_t most) const {
  return std::min({prompt + most, prompt + kMinCapacity, setup_->context});
}

// Pages for the texts about to be written, while one prompt is being read.
int64_t DecoderBatch::wanted_pages() const {
  const auto of = [&](const TextRequest& r, int64_t prompt, int64_t most) {
    return pages_for(wanted_tokens(prompt, most > 0 ? most : setup_->context)) + (r.slide ? 1 : 0);
  };
  int64_t out = kOwnPages + pages_for(kChunks.back());
  size_t rows = slots_.size();
  for (const Slot& s : slots_) {
    if (!s.text) continue;
    --rows;
    out += std::max<int64_t>(std::ssize(s.pages), of(s.text->request, s.text->prompt, s.text->most));
  }
  for (size_t i = 0; i < std::min(rows, waiting_.size()); ++i)
    out += of(waiting_[i]->request, std::ssize(waiting_[i]->request.prompt), waiting_[i]->request.max_tokens);
  return out;
}

// Gives the row's text pages for so many tokens, taking those of the youngest texts after it if none are free. False if
// that is not enough, or the text has ended in the meantime.
bool DecoderBatch::take_pages(size_t row, int64_t tokens) {
  Slot& slot = slots_[row];
  const auto need = static_cast<size_t>(pages_for(tokens));
  if (slot.pages.size() >= need) return true;
  if (max_pages_ && static_cast<int64_t>(need) > max_pages_ - kOwnPages) return false;
  bool settled = false;
  while (slot.text && slot.pages.size() + free_.size() < need) {
    if (more_pages(static_cast<int64_t>(need - slot.pages.size() - free_.size()))) continue;
    if (!slot.text) return false;
    if (!std::exchange(settled, true)) {  // some texts may end
      loop_->settle([this](size_t r, const SampledToken& t) { return take(r, t); });
      give_back_ended();
      continue;
    }
    const std::vector<size_t> rows = by_age();
    const auto other = std::ranges::find_if(rows.rbegin(), rows.rend(),
                                            [&](size_t r) { return r == row || !slots_[r].pages.empty(); });
    if (*other == row || !put_aside(*other)) return false;
  }
  if (!slot.text) return false;
  while (slot.pages.size() < need) {
    slot.pages.push_back(free_.back());
    free_.pop_back();
  }
  if (loop_->going(row)) loop_->give_pages(row, slot.pages);
  return true;
}

bool DecoderBatch::more_pages(int64_t count) {
  if (full_ || (max_pages_ && size_.pages + count > max_pages_)) return false;
  try {
    reserve(size_.capacity, size_.pages + count, 0);
    return true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Memory) throw;
    full_ = true;
    return false;
  }
}

void DecoderBatch::keep_pages(size_t row, int64_t tokens) {
  std::vector<int32_t>& pages = slots_[row].pages;
  for (; std::ssize(pages) > pages_for(tokens); pages.pop_back()) free_.push_back(pages.back());
}

// Takes pages from rows without a text, unless the next text may reuse its cache.
void DecoderBatch::give_back_ended() {
  for (size_t r = 0; r < slots_.size() && loop_; ++r) {
    Slot& slot = slots_[r];
    if (slot.text || (reuse_ && !slot.spoiled)) continue;
    const bool spoiled = std::exchange(slot.spoiled, false);
    if (slot.pages.empty()) continue;
    if (spoiled) loop_->settle([this](size_t row, const SampledToken& t) { return take(row, t); });
    loop_->park(r, 0);
    loop_->give_pages(r, {});
    keep_pages(r, 0);
    if (!spoiled) continue;
    slot.cached.clear();
    clear_free_pages();
  }
}

// Masks would not keep what is not finite from the next text with these pages: what they leave out is multiplied by 0.
// The text that left it had pages of padding too.
void DecoderBatch::clear_free_pages() {
  for (const Buffer& b : caches(size_)) {
    const int64_t bytes = b.bytes / size_.pages;
    const std::vector<std::byte> zeros(static_cast<size_t>(bytes));
    auto* to = static_cast<std::byte*>(states_->get(b).get());
    for (const int32_t page : free_) setup_->backend->copy_in(*stream_, to + page * bytes, zeros.data(), bytes);
    stream_->synchronize();
  }
}

// Takes a text's pages after copying their contents to host memory. False if the text has ended. No runs may be under
// way.
bool DecoderBatch::put_aside(size_t row) {
  Slot& slot = slots_[row];
  if (!slot.text) return false;
  const int64_t held = pages_for(std::ssize(slot.cached));
  for (const Buffer& b : caches(size_)) {
    const int64_t bytes = b.bytes / size_.pages;
    const auto* from = static_cast<const std::byte*>(states_->get(b).get());
    std::vector<std::byte>& to = slot.aside.emplace_back(static_cast<size_t>(held * bytes));
    for (int64_t i = 0; i < held; ++i)
      setup_->backend->copy_out(*stream_, to.data() + i * bytes, from + slot.pages[static_cast<size_t>(i)] * bytes,
                                bytes);
  }
  loop_->park(row, 0);
  loop_->give_pages(row, {});
  keep_pages(row, 0);
  return true;
}

// Resumes texts that were put aside, oldest first.
void DecoderBatch::take_up() {
  const std::vector<size_t> rows = by_age();
  for (const size_t r : rows) {
    Slot& slot = slots_[r];
    if (!slot.text || slot.aside.empty()) continue;
    const int64_t held = std::ssize(slot.cached), tokens = held + 1;
    // One page to spare, so that it is not put aside again at once.
    const bool may = r == rows.front() || std::ssize(free_) > pages_for(tokens);
    if (!may) return;
    if (!take_pages(r, tokens)) {
      if (slot.text) cannot_go_on(r, tokens);
      return;
    }
    const std::vector<std::vector<std::byte>> aside = std::exchange(slot.aside, {});
    const std::vector<Buffer> all = caches(size_);
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t bytes = all[i].bytes / size_.pages;
      auto* to = static_cast<std::byte*>(states_->get(all[i]).get());
      for (int64_t page = 0; page < pages_for(held); ++page)
        setup_->backend->copy_in(*stream_, to + slot.pages[static_cast<size_t>(page)] * bytes,
                                 aside[i].data() + page * bytes, bytes);
    }
    stream_->synchronize();
    if (slot.reading.empty()) join(r);
  }
}

// A text without pages waits for older ones; the oldest of all would wait forever and ends with an error.
void DecoderBatch::cannot_go_on(size_t row, int64_t tokens) {
  Slot& slot = slots_[row];
  const int64_t pages = full_ || !max_pages_ ? size_.pages : max_pages_;
  const bool never = pages_for(tokens) > pages - kOwnPages;
  if (!never && by_age().front() != row) {
    loop_->settle([this](size_t r, const SampledToken& t) { return take(r, t); });
    put_aside(row);
    return;
  }
  full_ = false;  // memory may become available again
  loop_->leave(row);
  slot.reading.clear();
  slot.aside.clear();
  end(std::move(slot.text),
      Error(ErrorKind::Memory, "context",
            "the text needs " + std::to_string(tokens) + " tokens, but the cache that all texts share holds at most " +
                std::to_string((pages - kOwnPages) * kCachePage - kChunks.back()) + " of one text"));
}

// ---- memory ---------------------------------------------------------------------------------------------------------

std::vector<Buffer> DecoderBatch::caches(const Size& size) const {
  const DecoderConfig& c = setup_->model->config();
  std::vector<Buffer> out;
  for (int64_t i = 0; i < c.layers; ++i)
    for (const char* part : {".k", ".v"}) {
      Buffer b;
      b.name = "cache." + std::to_string(i) + part;
      b.dtype = setup_->networks.precision.act;
      b.shape = {size.pages * kCachePage, c.key_heads, c.head_width};
      b.role = BufferRole::State;
      b.bytes = b.shape.numel() * size_of(b.dtype);
      out.push_back(std::move(b));
    }
  return out;
}

// Bytes that the first loop and the plans for chunks of prompts take besides the caches: activations, states, and
// weights not loaded yet. An existing loop frees its own before the next is made. Keeps the plans, which take a good
// part of the time until the first token.
int64_t DecoderBatch::beside_caches(const Size& size) {
  if (size_.capacity) return 0;
  std::vector<int64_t> chunks{0};
  chunks.insert(chunks.end(), kChunks.begin(), kChunks.end());
  std::vector<std::optional<Plan>> plans(chunks.size());
  const auto draft = [&](size_t first) {
    for (size_t i = first; i < chunks.size(); i += 2) plans[i] = plan_chunk(chunks[i], size);
  };
  run_beside([&] { draft(0); }, [&] { draft(1); });
  drafts_ = {size, {}};
  int64_t out = -size.pages * setup_->page_bytes();
  for (size_t i = 0; i < chunks.size(); ++i) {
    const MemoryPlan memory = plan_memory(*plans[i], *setup_->store);
    out += i == 0 ? memory.needed() : memory.arena + memory.scratch + memory.kept;
    drafts_.plans.emplace(chunks[i], std::move(*plans[i]));
  }
  return out;
}

// As plan_chunk for the present size, which may have been drafted: rebuild() drops drafts of other sizes.
Plan DecoderBatch::take_plan(int64_t tokens) {
  if (auto draft = drafts_.plans.extract(tokens)) return std::move(draft.mapped());
  return plan_chunk(tokens, size_);
}

// At least `pages` pages, and up to `at_best` as memory allows.
DecoderBatch::Size DecoderBatch::that_fits(int64_t tokens, int64_t pages, int64_t at_best) {
  const int64_t own = size_.pages * setup_->page_bytes(), bytes = pages * setup_->page_bytes();
  const int64_t free = setup_->backend->memory_available() + own, beside = beside_caches({tokens, at_best});
  const int64_t fit = std::max<int64_t>(free - beside, 0) / setup_->page_bytes();
  TENON_CHECK(Memory, pages <= fit, "context")
      << tokens << " tokens need " << bytes << " bytes of cache"
      << (beside ? " and " + std::to_string(beside) + " for weights and activations" : "") << ", but " << free
      << " are free: at most " << std::max<int64_t>((fit - kOwnPages) * kCachePage - kChunks.back(), 0)
      << " tokens fit";
  return {tokens, std::clamp(at_best, pages, fit)};
}

// Makes room for this many tokens in every text and for at least `least` pages; if the cache has to be rebuilt,
// preferably `wish`. The rows' contents are kept by a copy through host memory, and texts continue. If memory does not
// suffice, everything stays as it was.
void DecoderBatch::reserve(int64_t tokens, int64_t least, int64_t wish) {
  const Size before = size_;
  int64_t capacity = before.capacity;
  if (tokens > capacity)
    capacity = std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(tokens, kMinCapacity)))),
                        setup_->context);
  const int64_t all = kOwnPages + std::ssize(slots_) * table_pages(capacity);
  least = std::max(least, before.pages);
  wish = std::min(wish, all);
  if (std::max(wish, least) > before.pages) wish = std::min(std::max(wish, 2 * before.pages), all);
  wish = std::max(wish, least);
  if (max_pages_) least = std::min(least, max_pages_), wish = std::min(wish, max_pages_);
  if (capacity == before.capacity && wish == before.pages) return;
  const Size next = that_fits(capacity, least, wish);
  if (next == before) return;
  if (loop_) loop_->settle([this](size_t r, const SampledToken& t) { return take(r, t); });
  Held held;
  for (size_t r = 0; r < slots_.size(); ++r) held.writing.push_back(loop_ && loop_->going(r));
  if (loop_)
    for (const Buffer& b : caches(before)) {
      held.caches.emplace_back(static_cast<size_t>(b.bytes));
      setup_->backend->copy_out(*stream_, held.caches.back().data(), states_->get(b).get(), b.bytes);
    }
  try {
    rebuild(next, held);
  } catch (const Error& e) {
    if (!before.capacity) {
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
  for (int64_t i = next.pages; i-- > std::max(before.pages, kOwnPages);) free_.push_back(static_cast<int32_t>(i));
}

// Makes a loop over caches of this size, and restores what was held of the previous ones.
void DecoderBatch::rebuild(const Size& size, const Held& held) {
  prompts_.clear();
  loop_.reset();
  size_ = size;
  if (drafts_.size != size) drafts_ = {};
  states_ = std::make_shared<Buffers>(setup_->backend);
  make_loop();
  const std::vector<Buffer> now = caches(size);
  for (size_t i = 0; i < held.caches.size(); ++i)
    setup_->backend->copy_in(*stream_, states_->get(now[i]).get(), held.caches[i].data(),
                             std::min(std::ssize(held.caches[i]), now[i].bytes));
  stream_->synchronize();
  for (size_t r = 0; r < slots_.size(); ++r)
    if (held.writing[r]) join(r);
}

// Drops the loop and the caches; texts under way end with the error.
void DecoderBatch::forget(const Error& error) {
  prompts_.clear();
  loop_.reset();
  size_ = {};
  full_ = false;
  free_.clear();
  states_ = std::make_shared<Buffers>(setup_->backend);
  for (Slot& s : slots_) {
    s.cached.clear();
    s.reading.clear();
    s.pages.clear();
    s.aside.clear();
    s.spoiled = false;
    if (s.text) end(std::move(s.text), error);
  }
}

DecodeStepShape DecoderBatch::step_shape(const Size& size) const {
  return {.rows = std::ssize(slots_),
          .capacity = table_pages(size.capacity) * kCachePage,
          .page = kCachePage,
          .pages = size.pages,
          .stops = std::ssize(setup_->model->stop_ids())};
}

Plan DecoderBatch::plan_step(const DecodeStepShape& shape) const {
  return plan_decode_step(setup_->model->config(), shape, decoder_types(setup_->networks),
                          decoder_options("decode", setup_->networks));
}

// The plan for so many tokens of one text's prompt; 0: for a step of the loop.
Plan DecoderBatch::plan_chunk(int64_t tokens, const Size& size) const {
  if (tokens == 0) return plan_step(step_shape(size));
  DecoderShape shape;
  shape.tokens = tokens;
  shape.capacity = table_pages(size.capacity) * kCachePage;
  shape.page = kCachePage;
  shape.pages = size.pages;
  return plan_prompt(setup_->model->config(), shape, decoder_types(setup_->networks),
                     decoder_options("prompt", setup_->networks));
}

void DecoderBatch::make_loop() {
  loop_ = std::make_unique<DecodeLoop>(
      step_shape(size_), setup_->model->config().vocabulary,
      [this](const DecodeStepShape& shape) { return shape.penalises ? plan_step(shape) : take_plan(0); }, setup_->store,
      stream_, states_);
}

// The executable for so many tokens of a prompt.
DecoderBatch::Prompt& DecoderBatch::prompt(int64_t tokens) {
  auto found = prompts_.find(tokens);
  if (found == prompts_.end())
    found = prompts_
                .emplace(tokens, Prompt{Executable(take_plan(tokens), setup_->store, std::map<std::string, void*>{},
                                                   stream_, states_)})
                .first;
  return found->second;
}

}  // namespace tenon
