// CLIP's tokenizer: text to the ids that the text encoder was trained on, equal to transformers' CLIPTokenizer.
//
// Steps: the special tokens are cut out of the raw text; the rest is brought to NFC, white space becomes one blank,
// letters become lower case (code point by code point, full Unicode); a regular expression finds the words; each word's
// UTF-8 bytes go through byte-pair encoding with "</w>" on the last byte. Neither mojibake repair nor HTML unescaping
// is done (OpenAI's original does both, transformers neither).
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/io/prompt_weights.h"

namespace tenon {

/// Ids of a text with one weight each; both vectors are equally long.
struct WeightedTokens {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

/// One input of the text encoder: start token, text, end token, padding. Start, end and padding weigh 1.
struct TokenWindow {
  std::vector<int32_t> ids;
  std::vector<float> weights;
  int64_t text_tokens = 0;  ///< ids between start and end
};

class ClipTokenizer {
 public:
  /// From the two files of a tokenizer folder. The start and end tokens are "<|startoftext|>" and "<|endoftext|>" of
  /// the vocabulary, padding is the end token. Error(Model) names the file and what is wrong with it.
  static ClipTokenizer from_files(const std::filesystem::path& vocab, const std::filesystem::path& merges);
  /// From a folder with vocab.json and merges.txt, or else tokenizer.json. tokenizer_config.json, if it is there, may
  /// name another padding token and window length.
  static ClipTokenizer from_folder(const std::filesystem::path& folder);
  /// From the files' contents (`where` stands for them in errors).
  static ClipTokenizer from_text(std::string_view vocab_json, std::string_view merges, const std::string& where);

  /// From merges alone, with the ids that CLIP's own vocabulary has: bytes, bytes that end a word, one for each merge
  /// in order, start and end.
  static ClipTokenizer from_merges(std::string_view merges, const std::string& where);

  ClipTokenizer(ClipTokenizer&&) noexcept;
  ClipTokenizer& operator=(ClipTokenizer&&) noexcept;
  ~ClipTokenizer();

  int32_t start_id() const;
  int32_t end_id() const;
  int32_t pad_id() const;
  /// Ids in the vocabulary are below this: the least number of rows of an embedding that fits.
  int32_t vocab_size() const;
  /// Positions of the text encoder: 77.
  int64_t window_length() const;

  /// Ids of a text, without start, end and padding. Error(Usage) names the byte offset of invalid UTF-8.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Ids and weights of a prompt with (emphasis) as prompt_weights.h describes; each part is encoded on its own.
  /// Error(Usage) beyond kMaxPromptBytes. Asks check_stop().
  WeightedTokens encode_weighted(std::string_view prompt) const;

  /// The ids in as many windows as they need, at least one. `least` asks for more (a positive and a negative prompt
  /// have to be equally long); the windows beyond the text hold padding only.
  std::vector<TokenWindow> windows(const WeightedTokens& tokens, size_t least = 1) const;
  /// The first window alone, as diffusers cuts a long prompt; `dropped`, if given, is how many ids did not fit.
  TokenWindow first_window(const std::vector<int32_t>& ids, int64_t* dropped = nullptr) const;

 private:
  struct State;
  explicit ClipTokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace tenon
