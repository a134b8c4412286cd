// Byte-level byte-pair tokenizers: GPT-2, Qwen2, Qwen3, Llama 3, SmolLM2 and others of their kind.
//
// Text to ids, as transformers does it: added tokens are cut out of the raw text; the rest is brought to normal form C
// where the file says so, cut into words (pre_tokenizer.h), and each word's UTF-8 bytes go through byte-pair encoding
// (bpe.h). Ids to text: bytes of the tokens in a row, read as UTF-8, what is ill formed replaced by U+FFFD.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/io/added_tokens.h"
#include "tenon/io/bpe_files.h"
#include "tenon/io/gguf.h"
#include "tenon/io/pre_tokenizer.h"

namespace tenon {

/// What a tokenizer is made of, wherever it was read.
struct TokenizerParts {
  TokenIds tokens;
  MergeList merges;
  std::vector<AddedToken> added;
  PreTokenizer pre_tokenizer{WordPattern::Gpt2};
  bool nfc = false;                      ///< text is brought to normal form C
  bool whole_words = false;              ///< a word that is a token is not merged from bytes ("ignore_merges")
  std::optional<int32_t> unknown;        ///< what a byte without a token becomes; it is left out if there is no such id
  std::vector<int32_t> prefix;           ///< ids in front of every text, where a model wants them (Llama 3)
  std::optional<int32_t> bos, eos, pad;  ///< as the file names them
  std::optional<std::string> chat_template;
};

/// Immutable; safe to share between threads.
class ByteLevelTokenizer {
 public:
  /// Error(Model) with `where`: a merge of what are no tokens, two tokens of one id, an added token that the vocabulary
  /// has under another id, one that is longer than kMaxAddedTokenBytes, a control token that a byte or a merge makes.
  ByteLevelTokenizer(TokenizerParts parts, const std::string& where);

  /// From a folder with tokenizer.json, or else vocab.json and merges.txt; tokenizer_config.json gives special tokens,
  /// the chat template (which may also be in chat_template.jinja) and, for the latter two files, the kind of tokenizer.
  /// Error(Model) names the file and what is wrong with it, or what of it is not supported.
  static ByteLevelTokenizer from_folder(const std::filesystem::path& folder);
  /// From a tokenizer.json's text alone (`where` stands for it in errors).
  static ByteLevelTokenizer from_json(std::string_view tokenizer_json, const std::string& where);
  /// From a GGUF's metadata (tokenizer.ggml.*), of model "gpt2". Error(Model) as above.
  static ByteLevelTokenizer from_gguf(const GgufFile& file);

  /// A GGUF's tokenizer as transformers saves it, for from_folder: the text of tokenizer.json and of
  /// tokenizer_config.json, by these names. Error(Model) as from_gguf.
  static std::map<std::string, std::string> files_of_gguf(const GgufFile& file);

  /// Ids of a text. Added tokens written in it become themselves, control tokens too: for text of a template, or of a
  /// user who may do that. Nothing is put in front (see prefix()). Error(Usage) names the byte offset of invalid UTF-8.
  /// O(n log n).
  std::vector<int32_t> encode(std::string_view text) const;
  /// prefix() and encode(text): ids of a text to be continued.
  std::vector<int32_t> encode_whole(std::string_view text) const;
  /// Ids of a text as if there were no added tokens: "<|im_end|>" is so many letters. Never makes a control token.
  std::vector<int32_t> encode_ordinary(std::string_view text) const;

  /// `text` with `mark`, a character that it does not hold, inside every control token that is written in it: for what
  /// users say, before a template puts its own control tokens around it.
  std::string break_control(std::string_view text, std::string_view mark) const;
  /// encode() of such a text, whose marks are no part of it: what was broken is so many letters.
  std::vector<int32_t> encode_marked(std::string_view text, std::string_view mark) const;

  /// Text of ids; ids without a token have none. `skip_special` leaves control tokens out.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
  /// A token's bytes, which need not be UTF-8; empty for an id without a token. Valid as long as the tokenizer.
  std::string_view token_bytes(int32_t id) const;
  /// The id of an added token, or of a token by its text in the byte alphabet.
  std::optional<int32_t> id_of(std::string_view token) const;
  bool is_special(int32_t id) const;

  /// Ids are below this: the least number of rows of an embedding that fits.
  int32_t vocab_size() const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;
  /// Ids that belong in front of a text that no chat template made; empty for Qwen and SmolLM2.
  const std::vector<int32_t>& prefix() const;
  /// The file's chat template, for ChatTemplate (chat_template.h).
  const std::optional<std::string>& chat_template() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// Text of ids that come one by one. What push and finish return, joined, is decode() of all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(ByteLevelTokenizer tokenizer, bool skip_special = false)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

  /// The text that this id completes; "" while a character is still incomplete.
  std::string push(int32_t id);
  /// What is left: U+FFFD for a character that was never completed.
  std::string finish();

 private:
  ByteLevelTokenizer tokenizer_;
  bool skip_special_;
  std::string held_;  // at most three bytes, the beginning of a character
};

}  // namespace tenon
