// Texts written side by side over one cache, a pool of pages: a text has pages for what it has come to, from when its
// prompt is read until it ends. Where none is left, the youngest gives its own back and waits.
#pragma once
#include <deque>
#include <map>

#include "tenon/core/clock.h"
#include "tenon/pipelines/decode_loop.h"
#include "tenon/pipelines/text_generator.h"
#include "tenon/pipelines/text_stream.h"

namespace tenon {

/// How a language model's linear layers are computed. Error(Usage): in e4m3 rows, but for layers by name.
PrecisionPolicy decoder_precision(const NetworkOptions& options);
/// How its plans are made. Scales of channels become no part of a file's blocks of i8, which would be rounded again.
PlanOptions decoder_options(const std::string& name, const NetworkOptions& options);
/// Its element types: what becomes i8 in blocks is rounded once, from what the file has.
nn::Precision decoder_types(const NetworkOptions& options);

/// What batches of one generator share.
struct TextSetup {
  std::shared_ptr<const LanguageModel> model;
  std::shared_ptr<Backend> backend;
  std::shared_ptr<WeightStore> store;
  NetworkOptions networks;
  int64_t context = 0;
  int64_t cache_pages = 0;  ///< of a batch's pool, at most; 0: as memory has room for

  int64_t page_bytes() const;  ///< of keys and values in all layers
};

class DecoderBatch : public TextBatch {
 public:
  /// `reuse`: what a prompt has in common with what its row held before is not read again, so that scores may differ in
  /// their last bits from those of a prompt that is read anew, where runs of several sizes round differently.
  /// `tokens`: room of the pool, in whole pages; 0: as memory has.
  DecoderBatch(std::shared_ptr<const TextSetup> setup, int64_t rows, bool reuse, int64_t tokens = 0);

  int64_t submit(TextRequest request, OnText each) override;
  bool cancel(int64_t id) override;
  std::vector<EndedText> step() override;
  bool busy() const override;

 private:
  // A request and its text as far as it is.
  struct Text {
    Text(int64_t number, TextRequest r, OnText f, const ByteLevelTokenizer& tokenizer);
    int64_t id;
    TextRequest request;
    OnText each;
    TextStream stream;
    int64_t prompt = 0, most = 0;  // tokens read at first; to write
    Clock::time_point begin{};
    TextResult out;
    std::vector<int32_t> seen;  // with the prompt
    int64_t count() const { return std::ssize(out.tokens); }
  };
  // A row. Its text's tokens in `reading` are put into the cache, but for the last; then the loop writes.
  struct Slot {
    std::unique_ptr<Text> text;
    std::vector<int32_t> cached;   // what the cache holds, token by token
    std::vector<int32_t> reading;  // empty: the text is being written
    int32_t last = 0;              // then its last token, which the cache does not hold
    std::vector<int32_t> pages;    // of the cache
    // What they held, by cache, where the text had to give them back: it waits for others.
    std::vector<std::vector<std::byte>> aside;
  };
  // Runs of a prompt's tokens.
  struct Prompt {
    Executable executable;
    bool ran = false;  // its slower phases have
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

  // Pages for texts: text_pages.cpp.
  std::vector<size_t> by_age() const;
  bool take_pages(size_t row, int64_t tokens);
  bool more_pages(int64_t count);
  void keep_pages(size_t row, int64_t tokens);
  void give_back_ended();
  bool put_aside(size_t row);
  void take_up();
  void cannot_go_on(size_t row, int64_t tokens);
  int64_t wanted_tokens(int64_t prompt, int64_t most) const;
  int64_t wanted_pages() const;

  struct Size {
    int64_t capacity = 0, pages = 0;  ///< tokens of a text, at most; of the pool, with the one that is no text's
    bool operator==(const Size&) const = default;
  };
  struct Held {  // while caches grow
    std::vector<std::vector<std::byte>> caches;
    std::vector<bool> writing;  ///< by row
  };
  void reserve(int64_t tokens, int64_t least, int64_t wish);
  void rebuild(const Size& size, const Held& held);
  void forget(const Error& error);
  int64_t beside_caches(int64_t tokens) const;
  Size that_fits(int64_t tokens, int64_t pages, int64_t at_best) const;
  DecodeStepShape step_shape(const Size& size) const;
  Plan plan_step(const DecodeStepShape& shape) const;
  Plan plan_piece(int64_t tokens, const Size& size) const;
  void make_loop();
  Prompt& prompt(int64_t tokens);
  std::vector<Buffer> caches(const Size& size) const;

  std::shared_ptr<const TextSetup> setup_;
  bool reuse_;
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<Buffers> states_;
  Size size_;
  int64_t most_pages_;                 // that the pool may have; 0: as memory has room for
  bool full_ = false;                  // it cannot grow, as far as is known
  std::vector<int32_t> free_;          // pages that are no text's
  std::map<int64_t, Prompt> prompts_;  // by tokens of a run
  std::unique_ptr<DecodeLoop> loop_;
  std::vector<Slot> slots_;
  std::deque<std::unique_ptr<Text>> waiting_;
  std::vector<EndedText> ended_;
  int64_t submitted_ = 0;
  bool stepping_ = false;
};

}  // namespace tenon
