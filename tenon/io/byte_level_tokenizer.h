// Byte-level byte-pair tokenizers: GPT-2, Qwen2, Qwen3, Llama 3, SmolLM2 and others of their kind.
//
// Text to ids, as transformers does it: added tokens are cut out of the raw text; the rest is normalised to NFC if the
// file says so and split into words (pre_tokenizer.h); each word's UTF-8 bytes go through byte-pair encoding (bpe.h).
// Ids to text: the tokens' bytes are concatenated and read as UTF-8, with U+FFFD for what is ill-formed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

class GgufFile;
struct TokenizerParts;

/// Immutable; safe to share between threads.
class ByteLevelTokenizer {
 public:
  /// Error(Model) at `where`: a merge of things that are not tokens, two tokens with one id, an added token that the
  /// vocabulary has under another id or that is longer than kMaxAddedTokenBytes, a control token that a byte or a merge
  /// could produce.
  ByteLevelTokenizer(TokenizerParts parts, const std::string& where);

  /// From a folder with tokenizer.json, or else vocab.json and merges.txt. tokenizer_config.json gives special tokens,
  /// the chat template (which may also be in chat_template.jinja) and, with vocab.json and merges.txt, the kind of
  /// tokenizer. Error(Model) names the file and what in it is wrong or unsupported.
  static ByteLevelTokenizer from_folder(const std::filesystem::path& folder);
  /// From a tokenizer.json's text alone (`where` stands for it in errors).
  static ByteLevelTokenizer from_json(std::string_view tokenizer_json, const std::string& where);
  /// From a GGUF's metadata (tokenizer.ggml.*) with model "gpt2". Error(Model) as above.
  static ByteLevelTokenizer from_gguf(const GgufFile& file);

  /// A GGUF's tokenizer in the form that transformers saves and from_folder reads: the text of tokenizer.json and of
  /// tokenizer_config.json, under these names. Error(Model) as from_gguf.
  static std::map<std::string, std::string> files_of_gguf(const GgufFile& file);

  /// Ids of a text. Added tokens written in it, control tokens included, become those tokens: use it for a template's
  /// text, or for a user who may write control tokens. Adds no prefix (see prefix()). Error(Usage) names the byte
  /// offset of invalid UTF-8. O(n log n).
  std::vector<int32_t> encode(std::string_view text) const;
  /// prefix() followed by encode(text): ids of a text to be continued.
  std::vector<int32_t> encode_whole(std::string_view text) const;
  /// Ids of a text as if there were no added tokens: "<|im_end|>" is plain characters. Never produces a control token.
  std::vector<int32_t> encode_ordinary(std::string_view text) const;

  /// `text` with `mark`, a character that does not occur in it, inserted into every control token written in it. Tokens
  /// for which `keep` is true of their first byte and the one behind them stay whole.
  std::string break_control(std::string_view text, std::string_view mark,
                            const std::function<bool(size_t, size_t)>& keep = {}) const;
  /// Also marks wherever a control token could begin, so that no pieces of such texts make one together; other added
  /// tokens stay whole. A control token that begins with a letter or digit is marked only where all of it is written.
  /// For users' messages, before a template puts its own control tokens around them.
  std::string break_beginnings(std::string_view text, std::string_view mark) const;
  /// encode() of a text from these two, ignoring the marks: broken control tokens are encoded as plain characters.
  std::vector<int32_t> encode_marked(std::string_view text, std::string_view mark) const;

  /// Text of ids; ids without a token add nothing. `skip_special` leaves control tokens out.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
  /// A token's bytes, not necessarily UTF-8; empty for an id without a token. Valid as long as the tokenizer.
  std::string_view token_bytes(int32_t id) const;
  /// The id of an added token, or of a token given by its text in the byte alphabet.
  std::optional<int32_t> id_of(std::string_view token) const;
  bool is_special(int32_t id) const;

  /// Upper bound of ids: the least number of embedding rows that is enough.
  int32_t vocab_size() const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;
  /// Ids to put before a text that was not made by a chat template; empty for Qwen and SmolLM2.
  const std::vector<int32_t>& prefix() const;
  /// Texts of the tokens that the file gives a role, by its name: "bos_token", "unk_token", "image_token", ...
  const std::map<std::string, std::string>& named_tokens() const;
  /// The file's chat template, for ChatTemplate (chat_template.h).
  const std::optional<std::string>& chat_template() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// Decodes ids one at a time. What push and finish return, concatenated, is decode() of all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(ByteLevelTokenizer tokenizer, bool skip_special = false)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

  /// The text that this id completes; "" while a character is still incomplete.
  std::string push(int32_t id);
  /// What is left: U+FFFD for an incomplete character.
  std::string finish();

 private:
  ByteLevelTokenizer tokenizer_;
  bool skip_special_;
  std::string held_;  // at most three bytes, the beginning of a character
};

}  // namespace tenon
