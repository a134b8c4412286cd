// The first byte chooses: any bytes as a text for a small tokenizer, or (0) as a tokenizer.json that is then used on a
// text.
#include <cstdlib>
#include <string>
#include <string_view>

#include "tenon/core/error.h"
#include "tenon/io/bpe.h"
#include "tenon/io/byte_level_tokenizer.h"
#include "tenon/io/pre_tokenizer.h"
#include "tenon/io/tokenizer_parts.h"
#include "tenon/io/unicode.h"

namespace {
using namespace tenon;

// All bytes, a few merges, and control tokens, one of which begins another.
ByteLevelTokenizer make_tokenizer(WordPattern pattern, bool whole_words) {
  TokenizerParts parts;
  int32_t id = 0;
  for (const std::string& byte : byte_alphabet()) parts.tokens[byte] = id++;
  for (const auto& [left, right] :
       {std::pair{"a", "a"}, {"aa", "aa"}, {"Ġ", "t"}, {"h", "e"}, {"Ġt", "he"}, {"1", "2"}}) {
    parts.tokens[std::string(left) + right] = id++;
    parts.merges.emplace_back(left, right);
  }
  for (const char* token : {"<|a|>", "<|a|>b", "<x>"}) parts.added.push_back({id++, token});
  parts.added.push_back({id++, "<y>", false, false, true, true});
  parts.pre_tokenizer = PreTokenizer(pattern);
  parts.nfc = pattern == WordPattern::Qwen2;
  parts.whole_words = whole_words;
  return {std::move(parts), "fuzz"};
}

void check(const ByteLevelTokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  StreamDecoder stream(tokenizer);
  std::string streamed;
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
    streamed += stream.push(id);
  }
  if (streamed + stream.finish() != tokenizer.decode(ids)) std::abort();
  for (const int32_t id : tokenizer.encode_ordinary(text))
    if (tokenizer.is_special(id)) std::abort();
}
}  // namespace

namespace {
// Checks a user's message, as one text and as two.
void check_broken(const ByteLevelTokenizer& tokenizer, std::string_view text) {
  const std::string mark = "\xef\xb7\x90";
  if (text.find(mark) != text.npos) return;
  size_t middle = text.size() / 2;
  while (middle < text.size() && (static_cast<uint8_t>(text[middle]) & 0xc0) == 0x80) ++middle;
  const std::string pieces =
      tokenizer.break_beginnings(text.substr(0, middle), mark) + tokenizer.break_beginnings(text.substr(middle), mark);
  for (const std::string& broken : {tokenizer.break_control(text, mark), pieces})
    for (const int32_t id : tokenizer.encode_marked(broken, mark))
      if (tokenizer.is_special(id)) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ByteLevelTokenizer tokenizers[] = {make_tokenizer(WordPattern::Qwen2, false),
                                                  make_tokenizer(WordPattern::Gpt2, false),
                                                  make_tokenizer(WordPattern::Llama3, true)};
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] == 0) {
      check(ByteLevelTokenizer::from_json(text, "fuzz"), "it's 12 naïve  tests<|a|> \n x");
      return 0;
    }
    const ByteLevelTokenizer& tokenizer = tokenizers[data[0] % 3];
    const std::string valid = replace_invalid_utf8(text);
    check(tokenizer, valid);
    check_broken(tokenizer, valid);
    const bool normalises = data[0] % 3 == 0;
    if (tokenizer.decode(tokenizer.encode_ordinary(valid)) != (normalises ? nfc(valid) : valid)) std::abort();
    static_cast<void>(tokenizer.encode(text));  // unchanged: refused if it is not UTF-8
  } catch (const Error& e) {
    if (e.kind() != (data[0] == 0 ? ErrorKind::Model : ErrorKind::Usage)) std::abort();
  }
  return 0;
}
