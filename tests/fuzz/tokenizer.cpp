// The first byte chooses: any bytes as a prompt, or (0) as a vocabulary, a zero byte and merges, then used on a word.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tenon/core/error.h"
#include "tenon/io/bpe.h"
#include "tenon/io/clip_tokenizer.h"
#include "tenon/io/json.h"

namespace {
using namespace tenon;

// All bytes, and the merges of two words.
ClipTokenizer make_tokenizer() {
  nlohmann::json vocabulary;
  int id = 0;
  for (const std::string& c : byte_alphabet()) vocabulary[c] = id++;
  for (const std::string& c : byte_alphabet()) vocabulary[c + "</w>"] = id++;
  for (const char* token : {"ca", "cat</w>", "th", "the</w>", "aa", "aaaa", "<|startoftext|>", "<|endoftext|>"})
    vocabulary[token] = id++;
  return ClipTokenizer::from_text(vocabulary.dump(), "c a\nca t</w>\nt h\nth e</w>\na a\naa aa\n", "fuzz");
}

void check_windows(const ClipTokenizer& tokenizer, const WeightedTokens& tokens) {
  if (tokens.ids.size() != tokens.weights.size()) std::abort();
  for (int32_t id : tokens.ids)
    if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
  size_t held = 0;
  for (const TokenWindow& w : tokenizer.windows(tokens)) {
    if (w.ids.size() != 77 || w.weights.size() != 77 || w.ids.front() != tokenizer.start_id()) std::abort();
    held += static_cast<size_t>(w.text_tokens);
  }
  if (held != tokens.ids.size()) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ClipTokenizer tokenizer = make_tokenizer();
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] == 0) {
      const size_t cut = std::min(text.find('\0'), text.size());
      const auto own =
          ClipTokenizer::from_text(text.substr(0, cut), text.substr(std::min(cut + 1, text.size())), "fuzz");
      check_windows(own, own.encode_weighted("the (cat:1.5) naïve"));
    } else {
      static_cast<void>(tokenizer.first_window(tokenizer.encode(text)));
      check_windows(tokenizer, tokenizer.encode_weighted(text));
    }
  } catch (const Error& e) {
    if (e.kind() != (data[0] == 0 ? ErrorKind::Model : ErrorKind::Usage)) std::abort();
  }
  return 0;
}
