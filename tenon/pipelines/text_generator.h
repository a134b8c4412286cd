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
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/pipelines/family.h"
#include "tenon/pipelines/language_model.h"
#include "tenon/pipelines/networks.h"
#include "tenon/pipelines/sampling.h"

namespace tenon {

struct TextOptions {
  std::string device = "cpu";
  int threads = 0;            ///< of the CPU backend; 0: all processors
  std::optional<DType> type;  ///< empty: the device's default
  bool fusion = true, fold_scales = true;
  std::string adapter{};  ///< folder of a low-rank adapter as PEFT writes it, added to the weights; empty: none
  int64_t context = 0;    ///< tokens of prompt and text together, at most; 0: the model's positions
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
enum class TextEnd : uint8_t { StopToken, StopString, MaxTokens, Context };
/// As results name it: "stop" for both stops, "length" for both limits.
std::string_view finish_reason(TextEnd end);

struct TextResult {
  std::vector<TextToken> tokens;  ///< the token that ended it too
  std::string text;               ///< without control tokens, in front of the stop string
  TextEnd end = TextEnd::MaxTokens;
  double prompt_seconds = 0, token_seconds = 0;  ///< of the prompt's runs; of all the others
  int64_t reused = 0;                            ///< tokens of the prompt that the cache held already
};

using OnText = std::function<void(const TextToken&)>;

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
  virtual const LanguageModel& model() const = 0;
  virtual const Backend& backend() const = 0;
  virtual DType type() const = 0;
  /// Tokens of prompt and text together, at most.
  virtual int64_t context() const = 0;
};

std::unique_ptr<TextGenerator> make_text_generator(std::shared_ptr<const LanguageModel> model, TextOptions options);

/// The plan of a network that decoder() describes, its caches as states, its logits as "logits".
Plan plan_decoder(const DecoderConfig& c, const DecoderShape& shape, const NetworkOptions& options);

}  // namespace tenon
