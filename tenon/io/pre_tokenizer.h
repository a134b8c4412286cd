// Splits text into pieces before byte-pair encoding: the "pre_tokenizer" of a tokenizer.json.
//
// Few word patterns are in use, and each has a hand-written scanner here: linear time for any text, and no regular
// expression from a file is ever run. A pattern without a scanner is refused by name.
#pragma once
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// The word patterns that have a scanner. L, N, \s are Unicode's letters, numbers and white space.
enum class WordPattern {
  Gpt2,   ///< 's|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[^\sLN]+|\s+(?!\S)|\s+
  Qwen2,  ///< (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nLN]?L+|N| ?[^\sLN]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  Llama3  ///< Qwen2's with N{1,3} in place of N
};

/// A list of steps, each splitting every piece that the previous step left. Immutable; a plain value.
class PreTokenizer {
 public:
  /// From a tokenizer.json's "pre_tokenizer": ByteLevel, Split by one of the patterns, Digits, or a Sequence of these.
  /// Error(Model) for anything else, and unless one step is ByteLevel.
  static PreTokenizer from_json(const nlohmann::json& description, const std::string& where);
  /// By the name in a GGUF's tokenizer.ggml.pre: gpt-2, qwen2, llama-bpe (llama3, llama-v3), smollm. Error(Model) lists
  /// these for any other.
  static PreTokenizer from_gguf_name(std::string_view name, const std::string& where);
  /// The "pre_tokenizer" of a tokenizer.json that is equivalent to such a name. Error(Model) likewise.
  static nlohmann::json json_of_gguf_name(std::string_view name, const std::string& where);
  /// One word pattern alone.
  explicit PreTokenizer(WordPattern pattern);

  /// Whether a blank is put before a text that does not begin with white space.
  bool prefix_space() const { return std::find(steps_.begin(), steps_.end(), Step::PrefixSpace) != steps_.end(); }

  /// Calls f with the pieces of `text` (well-formed UTF-8), in order; concatenated they are the text (after a leading
  /// blank, if the file asks for one). Linear in the text.
  void each(std::string_view text, const std::function<void(std::string_view)>& f) const;

 private:
  enum class Step { Gpt2, Qwen2, Llama3, EachDigit, DigitRuns, PrefixSpace };
  PreTokenizer() = default;
  static Step step_of(WordPattern pattern);
  void add(const nlohmann::json& description, const std::string& where, int depth);
  void add_byte_level(const nlohmann::json& description, const std::string& where);
  void add_split(const nlohmann::json& description, const std::string& where);
  void run(size_t step, std::string_view text, const std::function<void(std::string_view)>& f) const;

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace tenon
