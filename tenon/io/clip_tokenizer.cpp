#include "tenon/io/clip_tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/core/utf8.h"
#include "tenon/io/bpe.h"
#include "tenon/io/bpe_files.h"
#include "tenon/io/clip_text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {
using nlohmann::json;
using Vocabulary = TokenIds;
using Merges = MergeList;

constexpr std::string_view kStart = "<|startoftext|>", kEnd = "<|endoftext|>";
constexpr int64_t kWindow = 77;
constexpr size_t kWordsBetweenStops = 256;

// Settings that tokenizer_config.json may override.
struct TokenizerSettings {
  std::optional<std::string> pad;
  std::optional<int64_t> window;
};

TokenizerSettings read_settings(const fs::path& file) {
  TokenizerSettings out;
  const json settings = read_json_object(file);
  if (settings.is_null()) return out;
  const auto find = [](const json& object, const char* key) {
    const auto at = object.find(key);
    return at == object.end() ? json() : *at;
  };
  json pad = find(settings, "pad_token");
  if (pad.is_object()) pad = find(pad, "content");
  TENON_CHECK(Model, pad.is_null() || pad.is_string(), file.string())
      << "expected pad_token to be a string, found " << shown_json(pad);
  if (pad.is_string()) out.pad = pad.get<std::string>();
  const json length = find(settings, "model_max_length");
  TENON_CHECK(Model, length.is_null() || length.is_number(), file.string())
      << "expected model_max_length to be a number, found " << shown_json(length);
  // "No limit" is written as 1e30.
  if (length.is_number_unsigned() && length.get<uint64_t>() >= 3 && length.get<uint64_t>() <= 4096)
    out.window = length.get<int64_t>();
  return out;
}

int32_t id_of(const Vocabulary& vocabulary, std::string_view token, const std::string& where) {
  const auto found = vocabulary.find(std::string(token));
  TENON_CHECK(Model, found != vocabulary.end(), where) << "the vocabulary has no token '" << shown(token) << "'";
  return found->second;
}
}  // namespace

struct ClipTokenizer::State {
  State(const Vocabulary& vocabulary, const Merges& merges, const std::string& where)
      : start(id_of(vocabulary, kStart, where)),
        end(id_of(vocabulary, kEnd, where)),
        pad(end),
        bpe(vocabulary, merges, "</w>", end, where) {
    for (const auto& [token, id] : vocabulary) size = std::max(size, id + 1);
  }

  // Encodes text without special tokens.
  void encode_plain(std::string_view text, std::vector<int32_t>& out) const {
    const std::string normal = clip_normal_form(text);
    size_t number = 0;
    words.each(normal, [&](std::string_view word) {
      if (number++ % kWordsBetweenStops == 0) check_stop("prompt");
      bpe.encode(word, out);
    });
  }

  int32_t start, end, pad, size = 0;
  int64_t window = kWindow;
  BytePairEncoder bpe;
  ClipWords words;
};

ClipTokenizer::ClipTokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
ClipTokenizer::ClipTokenizer(ClipTokenizer&&) noexcept = default;
ClipTokenizer& ClipTokenizer::operator=(ClipTokenizer&&) noexcept = default;
ClipTokenizer::~ClipTokenizer() = default;

int32_t ClipTokenizer::start_id() const { return state_->start; }
int32_t ClipTokenizer::end_id() const { return state_->end; }
int32_t ClipTokenizer::pad_id() const { return state_->pad; }
int32_t ClipTokenizer::vocab_size() const { return state_->size; }
int64_t ClipTokenizer::window_length() const { return state_->window; }

ClipTokenizer ClipTokenizer::from_text(std::string_view vocab_json, std::string_view merges, const std::string& where) {
  const Vocabulary vocabulary = read_token_ids(parse_json(vocab_json, where), where);
  return ClipTokenizer(std::make_unique<const State>(vocabulary, read_merges_text(merges, where), where));
}

ClipTokenizer ClipTokenizer::from_merges(std::string_view merges, const std::string& where) {
  const Merges pairs = read_merges_text(merges, where);
  Vocabulary vocabulary;
  const auto add = [&](std::string token) {
    vocabulary.emplace(std::move(token), static_cast<int32_t>(vocabulary.size()));
  };
  for (const char* end_of_word : {"", "</w>"})
    for (const bool printable : {true, false})  // bytes that map to themselves come first
      for (size_t byte = 0; byte < byte_alphabet().size(); ++byte)
        if (stands_for_itself(static_cast<int>(byte)) == printable) add(byte_alphabet()[byte] + end_of_word);
  for (const auto& [left, right] : pairs) add(left + right);
  add(std::string(kStart));
  add(std::string(kEnd));
  TENON_CHECK(Model, vocabulary.size() == 2 * byte_alphabet().size() + pairs.size() + 2, where)
      << "a merge makes a token that already exists";
  return ClipTokenizer(std::make_unique<const State>(vocabulary, pairs, where));
}

ClipTokenizer ClipTokenizer::from_files(const fs::path& vocab, const fs::path& merges) {
  const Vocabulary vocabulary = read_token_ids(read_json(vocab), vocab.string());
  const Merges pairs = read_merges_text(read_file(merges), merges.string());
  return ClipTokenizer(std::make_unique<const State>(vocabulary, pairs, vocab.string()));
}

ClipTokenizer ClipTokenizer::from_folder(const fs::path& folder) {
  const fs::path vocab = folder / "vocab.json", merges = folder / "merges.txt", both = folder / "tokenizer.json";
  const fs::path config = folder / "tokenizer_config.json";
  std::unique_ptr<State> state;
  Vocabulary vocabulary;
  if (file_exists(vocab) && file_exists(merges)) {
    vocabulary = read_token_ids(read_json(vocab), vocab.string());
    state = std::make_unique<State>(vocabulary, read_merges_text(read_file(merges), merges.string()), vocab.string());
  } else {
    TENON_CHECK(Model, file_exists(both), folder.string())
        << "no tokenizer here: expected vocab.json and merges.txt, or tokenizer.json";
    const json tokenizer = read_json(both);
    TENON_CHECK(Model,
                tokenizer.is_object() && tokenizer.contains("model") && tokenizer["model"].is_object() &&
                    tokenizer["model"].contains("vocab") && tokenizer["model"].contains("merges"),
                both.string())
        << "expected an object 'model' with 'vocab' and 'merges'";
    vocabulary = read_token_ids(tokenizer["model"]["vocab"], both.string());
    state =
        std::make_unique<State>(vocabulary, read_merges(tokenizer["model"]["merges"], both.string()), both.string());
  }
  const TokenizerSettings settings = read_settings(config);
  if (settings.pad) state->pad = id_of(vocabulary, *settings.pad, config.string());
  if (settings.window) state->window = *settings.window;
  return ClipTokenizer(std::move(state));
}

std::vector<int32_t> ClipTokenizer::encode(std::string_view text) const {
  if (const auto bad = first_invalid_utf8(text))
    throw Error(ErrorKind::Usage, "prompt", "invalid UTF-8 at byte " + std::to_string(*bad));
  std::vector<int32_t> out;
  while (!text.empty()) {
    const size_t s = text.find(kStart), e = text.find(kEnd), at = std::min({s, e, text.size()});
    state_->encode_plain(text.substr(0, at), out);
    text.remove_prefix(at);
    if (text.empty()) break;
    out.push_back(s < e ? state_->start : state_->end);
    text.remove_prefix(s < e ? kStart.size() : kEnd.size());
  }
  return out;
}

WeightedTokens ClipTokenizer::encode_weighted(std::string_view prompt) const {
  TENON_CHECK(Usage, prompt.size() <= kMaxPromptBytes, "prompt")
      << "has " << prompt.size() << " bytes; at most " << kMaxPromptBytes << " are read";
  // Before the prompt is split into parts, so that the offset refers to the user's text.
  if (const auto bad = first_invalid_utf8(prompt))
    throw Error(ErrorKind::Usage, "prompt", "invalid UTF-8 at byte " + std::to_string(*bad));
  WeightedTokens out;
  for (const WeightedText& part : parse_prompt_weights(prompt)) {
    check_stop("prompt");
    const std::vector<int32_t> ids = encode(part.text);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.weights.insert(out.weights.end(), ids.size(), part.weight);
  }
  return out;
}

std::vector<TokenWindow> ClipTokenizer::windows(const WeightedTokens& tokens, size_t least) const {
  const auto room = static_cast<size_t>(state_->window - 2), length = static_cast<size_t>(state_->window);
  const size_t count = std::max({least, (tokens.ids.size() + room - 1) / room, size_t{1}});
  std::vector<TokenWindow> out(count);
  for (size_t w = 0; w < count; ++w) {
    const size_t begin = std::min(w * room, tokens.ids.size()), end = std::min(begin + room, tokens.ids.size());
    TokenWindow& window = out[w];
    window.text_tokens = static_cast<int64_t>(end - begin);
    window.ids.assign(length, state_->pad);
    window.weights.assign(length, 1.0f);
    window.ids[0] = state_->start;
    std::copy(tokens.ids.data() + begin, tokens.ids.data() + end, window.ids.begin() + 1);
    std::copy(tokens.weights.data() + begin, tokens.weights.data() + end, window.weights.begin() + 1);
    window.ids[1 + end - begin] = state_->end;
  }
  return out;
}

TokenWindow ClipTokenizer::first_window(const std::vector<int32_t>& ids, int64_t* dropped) const {
  const size_t kept = std::min(ids.size(), static_cast<size_t>(state_->window - 2));
  if (dropped) *dropped = static_cast<int64_t>(ids.size() - kept);
  const auto last = ids.begin() + static_cast<std::ptrdiff_t>(kept);
  return windows({std::vector<int32_t>(ids.begin(), last), std::vector<float>(kept, 1.0f)})[0];
}

}  // namespace tenon
