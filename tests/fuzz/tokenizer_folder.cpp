// Separated by a zero byte: tokenizer.json and tokenizer_config.json. Either an Error(Model), or a usable tokenizer.
#include "tenon/io/clip_tokenizer.h"
#include "tests/fuzz/fuzz_tools.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tenon;
  static const fuzz::Folder folder;
  const std::vector<std::string_view> parts = fuzz::texts(data, size, 2);
  folder.write("tokenizer.json", parts[0]);
  folder.write("tokenizer_config.json", parts[1].empty() ? "{}" : parts[1]);
  fuzz::refuses_only({ErrorKind::Model}, [] {
    const auto tokenizer = ClipTokenizer::from_folder(folder.path());
    const WeightedTokens tokens = tokenizer.encode_weighted("the (cat:1.5) naïve");
    for (const TokenWindow& w : tokenizer.windows(tokens)) {
      if (static_cast<int64_t>(w.ids.size()) != tokenizer.window_length()) std::abort();
      for (const int32_t id : w.ids)
        if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
    }
  });
  return 0;
}
