// Text from a language model: a prompt's tokens go through the network a chunk at a time, then one token a run, over
// one cache of keys and values.
//
//   auto model = LanguageModel::open("smollm2");
//   const auto generator = make_text_generator(model, {});
//   TextRequest r;
//   r.prompt = model->tokenizer().encode("Once upon a time");
//   std::string text = generator->generate(r).text;
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/core/error.h"
#include "tenon/pipelines/family.h"
#include "tenon/pipelines/language_model.h"
#include "tenon/pipelines/networks.h"
#include "tenon/pipelines/sampling.h"

namespace tenon {

struct TextOptions {
  std::string device = "cpu";
  int threads = 0;                  ///< of the CPU backend; 0: all processors
  std::optional<NetworkType> type;  ///< empty: the device's default
  bool fusion = true, fold_scales = true;
  std::string adapter{};  ///< folder of a low-rank adapter as PEFT writes it, added to the weights; empty: none
  int64_t context = 0;    ///< tokens of prompt and text together, at most; 0: the model's positions
  /// Bytes that the pages of generate() may take, and those of a batch; 0: as memory has. Without `context` a text has
  /// as many tokens as there is room for.
  int64_t cache_limit = 0;
};

struct TextRequest {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;  ///< 0: as many as the context has room for
  Sampling sampling;
  uint64_t seed = 0;
  std::vector<std::string> stop;  ///< the text ends in front of the first of these
  bool ignore_stop_ids = false;   ///< go on behind the model's end
  /// Where the context is full, its last half is read anew and the text goes on behind it; a prompt that is too long
  /// loses its beginning. Otherwise the text ends there, and the prompt is refused.
  bool slide = false;
};

/// A token that was made, and the text that became certain with it: perhaps of earlier tokens too, perhaps none yet.
struct TextToken {
  int32_t id = 0;
  double log_probability = 0;  ///< SampledToken's
  std::string text;
};

/// Why a text ended.
enum class TextEnd : uint8_t { StopToken, StopString, MaxTokens, Context, Cancelled };
/// As results name it: "stop" for both stops, "length" for both limits, "cancelled".
std::string_view finish_reason(TextEnd end);

struct TextResult {
  std::vector<TextToken> tokens;  ///< the token that ended it too
  std::string text;               ///< without control tokens, in front of the stop string
  TextEnd end = TextEnd::MaxTokens;
  double prompt_seconds = 0, token_seconds = 0;  ///< to the first token; from there on
  int64_t reused = 0;                            ///< tokens of the prompt that the cache held already
};

using OnText = std::function<void(const TextToken&)>;

/// A text of a batch that has ended: what came of it, or what was wrong with it.
struct EndedText {
  int64_t id = 0;
  TextResult result;
  std::optional<Error> error;
};

/// Texts written side by side, as many as there are rows; others wait for a row in the order in which they came. A text
/// joins and leaves between two tokens of the others. Its tokens and log-probabilities are those that generate() of a
/// new generator gives: in f32 on the CPU bit for bit, elsewhere as far as the kernels for one row and for several
/// round alike.
///
///   const auto batch = generator->batch(8);
///   for (const TextRequest& r : requests) batch->submit(r);
///   while (batch->busy())
///     for (const EndedText& t : batch->step()) std::cout << t.id << ": " << t.result.text << "\n";
///
/// One thread at a time. Several batches of one generator, and its generate(), may be used by several threads. A text's
/// own callback may call nothing of its batch (Error(Usage)).
class TextBatch {
 public:
  virtual ~TextBatch() = default;
  /// Takes a request and gives it a number: 0, 1, 2.. `each` is called by step(). Error(Usage): as generate().
  virtual int64_t submit(TextRequest request, OnText each = {}) = 0;
  /// Ends a text, which comes out of the next step() with what there is of it. False: it has ended before. Error(Usage)
  /// for a number that submit() has not given.
  virtual bool cancel(int64_t id) = 0;
  /// Reads a piece of one prompt that waits, at most 512 tokens; lets every text that is being written go on by a token
  /// or a few; gives what has ended. What is wrong with one text (no memory for its context, scores that are not
  /// finite) is an EndedText; the others go on. Asks check_stop(). If that or a callback throws, all texts are dropped
  /// and the batch is empty.
  virtual std::vector<EndedText> step() = 0;
  /// Whether texts are waiting or being written, or have ended and step() has not given them yet.
  virtual bool busy() const = 0;
};

class TextGenerator {
 public:
  static constexpr AbilityName kAbility{"complete", "write text", "sums"};
  using Options = TextOptions;

  virtual ~TextGenerator() = default;
  /// One call at a time, which asks check_stop() before every token. `each` is called with every token as it comes; at
  /// the end the text that was held back comes with the last one. The same request gives the same tokens. Error(Usage):
  /// a prompt without tokens, with ids outside the vocabulary, or longer than the context, unless it slides; a sampling
  /// option out of its range. Error(Memory): the context does not fit; the message says how many tokens do.
  /// Error(Numeric).
  virtual TextResult generate(const TextRequest& request, const OnText& each = {}) = 0;
  /// A batch of 1 to 1024 rows with a cache of its own, over the same weights, which it keeps alive. `tokens`: of all
  /// texts together, that the cache has room for, within TextOptions::cache_limit; 0: as memory has.
  virtual std::unique_ptr<TextBatch> batch(int64_t rows, int64_t tokens = 0) = 0;
  virtual const LanguageModel& model() const = 0;
  virtual const Backend& backend() const = 0;
  virtual NetworkType type() const = 0;  ///< TextOptions::type
  /// Tokens of prompt and text together, at most.
  virtual int64_t context() const = 0;
};

/// Texts of all requests, in their order, written side by side in a batch of `rows`; fewer if there are fewer
/// requests. Error of the first that has one.
std::vector<TextResult> generate_all(TextGenerator& generator, std::span<const TextRequest> requests, int64_t rows);

/// Error(Memory) for a cache limit that is too small for one text of the context, or of any: it names the least that
/// does.
std::unique_ptr<TextGenerator> make_text_generator(std::shared_ptr<const LanguageModel> model,
                                                   const TextOptions& options);

/// What puts tokens into the cache: the plan of a network that decoder() describes, without its logits.
Plan plan_prompt(const DecoderConfig& c, const DecoderShape& shape, nn::Precision p, const PlanOptions& options);

/// The plan of a network that decoder() describes, its caches as states, its logits as "logits".
Plan plan_decoder(const DecoderConfig& c, const DecoderShape& shape, const NetworkOptions& options);

}  // namespace tenon
