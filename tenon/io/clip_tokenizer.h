// CLIP's tokenizer: text to the ids that the text encoder was trained on, same as transformers' CLIPTokenizer.
//
// Steps: special tokens are cut out of the raw text; the rest is normalised to NFC, white space becomes one blank,
// letters are lower-cased (code point by code point, full Unicode); a regular expression finds the words; each word's
// UTF-8 bytes go through byte-pair encoding with "</w>" on the last byte. There is no mojibake repair and no HTML
// unescaping (OpenAI's original does both, transformers neither).
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/io/prompt_weights.h"

namespace tenon {

/// Ids of a text and a weight for each; both vectors have the same length.
struct WeightedTokens {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

/// One input of the text encoder: start token, text, end token, padding. Start, end and padding have weight 1.
struct TokenWindow {
  std::vector<int32_t> ids;
  std::vector<float> weights;
  int64_t text_tokens = 0;  ///< ids between start and end
};

class ClipTokenizer {
 public:
  /// From the two files of a tokenizer folder. Start and end tokens are the vocabulary's "<|startoftext|>" and
  /// "<|endoftext|>"; the end token is also the padding. Error(Model) names the file and what is wrong with it.
  static ClipTokenizer from_files(const std::filesystem::path& vocab, const std::filesystem::path& merges);
  /// From a folder with vocab.json and merges.txt, or else tokenizer.json. An optional tokenizer_config.json may set
  /// another padding token and window length.
  static ClipTokenizer from_folder(const std::filesystem::path& folder);
  /// From the files' contents (`where` stands for their names in errors).
  static ClipTokenizer from_text(std::string_view vocab_json, std::string_view merges, const std::string& where);

  /// From merges alone, numbered as in CLIP's own vocabulary: bytes, bytes at a word's end, one id per merge in order,
  /// start and end.
  static ClipTokenizer from_merges(std::string_view merges, const std::string& where);

  ClipTokenizer(ClipTokenizer&&) noexcept;
  ClipTokenizer& operator=(ClipTokenizer&&) noexcept;
  ~ClipTokenizer();

  int32_t start_id() const;
  int32_t end_id() const;
  int32_t pad_id() const;
  /// Upper bound of the vocabulary's ids: the least number of embedding rows that is enough.
  int32_t vocab_size() const;
  /// Positions of the text encoder: 77.
  int64_t window_length() const;

  /// Ids of a text, without start, end and padding. Error(Usage) names the byte offset of invalid UTF-8.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Ids and weights of a prompt with (emphasis), as described in prompt_weights.h; each part is encoded on its own.
  /// Error(Usage) beyond kMaxPromptBytes. Asks check_stop().
  WeightedTokens encode_weighted(std::string_view prompt) const;

  /// Splits the ids into as many windows as they need, at least one. `least` asks for more, because a positive and a
  /// negative prompt must have equally many; extra windows hold only padding.
  std::vector<TokenWindow> windows(const WeightedTokens& tokens, size_t least = 1) const;
  /// The first window alone, truncating a long prompt as diffusers does; `dropped`, if given, gets the number of ids
  /// cut off.
  TokenWindow first_window(const std::vector<int32_t>& ids, int64_t* dropped = nullptr) const;

 private:
  struct State;
  explicit ClipTokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace tenon
