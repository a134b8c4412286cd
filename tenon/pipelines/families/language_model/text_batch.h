// Texts generated side by side over one cache, a pool of pages. From the reading of its prompt until its end a text has
// pages for the tokens that it has so far. When no page is left, the youngest text gives its pages back and waits.
#pragma once
#include <deque>
#include <map>

#include "tenon/core/clock.h"
#include "tenon/pipelines/decode_loop.h"
#include "tenon/pipelines/decoder_plans.h"
#include "tenon/pipelines/text_generator.h"
#include "tenon/pipelines/text_stream.h"

namespace tenon {

/// Shared by the batches of one generator.
struct TextSetup {
  std::shared_ptr<const LanguageModel> model;
  std::shared_ptr<Backend> backend;
  std::shared_ptr<WeightStore> store;
  NetworkOptions networks;
  int64_t context = 0;
  int64_t cache_pages = 0;  ///< most pages in a batch's pool; 0: as many as fit into memory

  int64_t page_bytes() const;  ///< bytes of a page's keys and values in all layers
};

class DecoderBatch : public TextBatch {
 public:
  /// `reuse`: do not read the part of a prompt that its row's cache already holds. Its scores may then differ in their
  /// last bits from those of a prompt read from scratch, where runs of different sizes round differently. `tokens`:
  /// room of the pool, in whole pages; 0: as many as fit into memory.
  DecoderBatch(std::shared_ptr<const TextSetup> setup, int64_t rows, bool reuse, int64_t tokens = 0);

  int64_t submit(TextRequest request, OnText each) override;
  bool cancel(int64_t id) override;
  std::vector<EndedText> step() override;
  bool busy() const override;

 private:
  // A request and its text so far.
  struct Text {
    Text(int64_t number, TextRequest r, OnText f, const ByteLevelTokenizer& tokenizer);
    int64_t id;
    TextRequest request;
    OnText each;
    TextStream stream;
    int64_t prompt = 0, most = 0;  // tokens read at first; most tokens to write
    Clock::time_point begin{};
    TextResult out;
    std::vector<int32_t> seen;  // including the prompt
    int64_t count() const { return std::ssize(out.tokens); }
  };
  // A row. First all tokens of its text in `reading` except the last are put into the cache; then the loop generates.
  struct Slot {
    std::unique_ptr<Text> text;
    std::vector<int32_t> cached;   // the tokens in the cache, in order
    std::vector<int32_t> reading;  // empty: the text is being generated
    int32_t last = 0;              // in that case its last token, which is not in the cache
    std::vector<int32_t> pages;    // its pages of the cache
    bool spoiled = false;          // these may hold values that are not finite, of a text that has ended
    // Contents of its pages, cache by cache, if the text had to give them back and waits for others.
    std::vector<std::vector<std::byte>> aside;
  };
  // A run over some tokens of a prompt.
  struct Prompt {
    Executable executable;
    bool ran = false;  // its slower phases have run
  };

  void check(const TextRequest& r) const;
  void advance();
  void admit(size_t row);
  void read(size_t row, std::vector<int32_t> tokens);
  void read_chunk(size_t row);
  void join(size_t row);
  void go_on(size_t row);
  void write();
  bool take(size_t row, const SampledToken& next);
  bool add(Text& t, const SampledToken& next) const;
  void end(std::unique_ptr<Text> text, std::optional<Error> error = {});
  void drop_all();
  std::span<const int32_t> stops(const TextRequest& r) const;
  std::vector<int32_t> last_half(const std::vector<int32_t>& tokens) const;

  // Pages of texts: text_pages.cpp.
  std::vector<size_t> by_age() const;
  bool take_pages(size_t row, int64_t tokens);
  bool more_pages(int64_t count);
  void keep_pages(size_t row, int64_t tokens);
  void give_back_ended();
  void clear_free_pages();
  bool put_aside(size_t row);
  void take_up();
  void cannot_go_on(size_t row, int64_t tokens);
  int64_t wanted_tokens(int64_t prompt, int64_t most) const;
  int64_t wanted_pages() const;

  struct Size {
    int64_t capacity = 0, pages = 0;  ///< most tokens of a text; pages of the pool, including the one that is no text's
    bool operator==(const Size&) const = default;
  };
  struct Drafts {  // plans made to see what memory they need, by number of tokens of a prompt; 0: a step
    Size size;
    std::map<int64_t, Plan> plans;
  };
  struct Held {  // contents of the caches while they grow
    std::vector<std::vector<std::byte>> caches;
    std::vector<bool> writing;  ///< by row
  };
  void reserve(int64_t tokens, int64_t least, int64_t wish);
  void rebuild(const Size& size, const Held& held);
  void forget(const Error& error);
  int64_t beside_caches(const Size& size);
  Size that_fits(int64_t tokens, int64_t pages, int64_t at_best);
  DecodeStepShape step_shape(const Size& size) const;
  Plan plan_step(const DecodeStepShape& shape) const;
  Plan plan_chunk(int64_t tokens, const Size& size) const;
  Plan take_plan(int64_t tokens);
  void make_loop();
  Prompt& prompt(int64_t tokens);
  std::vector<Buffer> caches(const Size& size) const;

  std::shared_ptr<const TextSetup> setup_;
  bool reuse_;
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<Buffers> states_;
  Size size_;
  Drafts drafts_;
  int64_t max_pages_;                  // most pages that the pool may have; 0: as many as fit into memory
  bool full_ = false;                  // it cannot grow, as far as is known
  std::vector<int32_t> free_;          // pages that belong to no text
  std::map<int64_t, Prompt> prompts_;  // by number of tokens in a run
  std::unique_ptr<DecodeLoop> loop_;
  std::vector<Slot> slots_;
  std::deque<std::unique_ptr<Text>> waiting_;
  std::vector<EndedText> ended_;
  int64_t submitted_ = 0;
  bool stepping_ = false;
};

}  // namespace tenon
