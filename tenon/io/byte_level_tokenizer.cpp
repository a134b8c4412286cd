#include "tenon/io/byte_level_tokenizer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <unordered_set>

#include "tenon/core/error.h"
#include "tenon/core/utf8.h"
#include "tenon/io/added_tokens.h"
#include "tenon/io/bpe.h"
#include "tenon/io/bpe_files.h"
#include "tenon/io/tokenizer_parts.h"
#include "tenon/io/unicode.h"

namespace tenon {
namespace {

// The bytes that a token's text in the byte alphabet stands for; text with any other characters stands for itself.
std::string bytes_of(const std::string& token) {
  static const std::unordered_map<uint32_t, char> inverse = [] {
    std::unordered_map<uint32_t, char> out;
    for (size_t b = 0; b < 256; ++b) {
      size_t at = 0;
      out[next_code_point(byte_alphabet()[b], at)] = static_cast<char>(b);
    }
    return out;
  }();
  std::string out;
  for (size_t i = 0; i < token.size();) {
    const auto found = inverse.find(next_code_point(token, i));
    if (found == inverse.end()) return token;
    out += found->second;
  }
  return out;
}

// An encoder without the merges that result in a control token, if there are any; for texts that must not have one.
std::optional<BytePairEncoder> without_control(const TokenizerParts& parts,
                                               const std::unordered_set<std::string>& control,
                                               const std::string& where) {
  const auto makes_control = [&](const auto& merge) { return control.count(merge.first + merge.second) > 0; };
  if (control.empty() || std::none_of(parts.merges.begin(), parts.merges.end(), makes_control)) return std::nullopt;
  MergeList merges = parts.merges;
  std::erase_if(merges, makes_control);
  return BytePairEncoder(parts.tokens, std::move(merges), "", parts.unknown.value_or(-1), where);
}

std::unordered_set<std::string> control_tokens(const TokenizerParts& parts, const std::string& where) {
  std::unordered_set<std::string> out;
  for (const AddedToken& token : parts.added)
    if (token.special) out.insert(token.content);
  for (const std::string& byte : byte_alphabet())
    TENON_CHECK(Model, out.count(byte) == 0, where) << "control token '" << byte << "' is also the token of a byte";
  return out;
}

std::vector<AddedToken> added_of(const TokenizerParts& parts, bool normalized) {
  std::vector<AddedToken> out;
  for (AddedToken token : parts.added) {
    if (token.normalized != normalized) continue;
    if (normalized && parts.nfc) token.content = nfc(token.content);
    out.push_back(std::move(token));
  }
  return out;
}

// Control tokens, matched by their text alone.
std::vector<AddedToken> control_of(const TokenizerParts& parts) {
  std::vector<AddedToken> out;
  for (const AddedToken& token : parts.added)
    if (token.special) out.push_back({token.id, token.content});
  return out;
}

// What break_beginnings looks for: with id 1, what it marks, first characters of control tokens, except letters and
// digits, since templates look up and compare words; with id 0, what stays whole, the other added tokens. Of these,
// beginnings of control tokens are marked too.
std::vector<AddedToken> beginnings_of(const TokenizerParts& parts) {
  std::set<std::string_view> control;
  for (const AddedToken& token : parts.added)
    if (token.special) control.insert(token.content);
  std::map<std::string_view, bool> marked;
  for (const AddedToken& token : parts.added) {
    const std::string_view all = token.content;
    if (all.empty()) continue;
    if (!token.special) {
      const auto longer = control.lower_bound(all);
      marked[all] |= longer != control.end() && longer->starts_with(all);
    } else if (!std::isalnum(static_cast<unsigned char>(all[0]))) {
      size_t end = 0;
      next_code_point(all, end);
      marked[all.substr(0, end)] = true;
    }
  }
  std::vector<AddedToken> out;
  for (const auto& [content, mark] : marked) out.push_back({mark ? 1 : 0, std::string(content)});
  return out;
}

std::string without(std::string_view text, std::string_view mark) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(mark, at), text.size());
    out += text.substr(at, end - at);
    at = end + mark.size();
  }
  return out;
}

void check_added(const TokenizerParts& parts, const std::string& where) {
  std::unordered_set<std::string_view> seen;
  for (const AddedToken& token : parts.added) {
    TENON_CHECK(Model, token.id >= 0 && token.id < kMaxTokenId, where)
        << "added token '" << token.content << "': expected an id from 0 to " << kMaxTokenId - 1 << ", found "
        << token.id;
    TENON_CHECK(Model, token.content.size() <= kMaxAddedTokenBytes, where)
        << "added token " << token.id << " has " << token.content.size() << " bytes; at most " << kMaxAddedTokenBytes
        << " are supported";
    TENON_CHECK(Model, seen.insert(token.content).second, where)
        << "added token '" << token.content << "' occurs twice";
    const auto known = parts.tokens.find(token.content);
    TENON_CHECK(Model, known == parts.tokens.end() || known->second == token.id, where)
        << "added token '" << token.content << "' has id " << token.id << ", but " << known->second
        << " in the vocabulary";
  }
}

}  // namespace

struct ByteLevelTokenizer::State {
  State(TokenizerParts p, const std::string& where, const std::unordered_set<std::string>& names)
      : parts(std::move(p)),
        raw(added_of(parts, false)),
        normal(added_of(parts, true)),
        control(control_of(parts)),
        beginnings(beginnings_of(parts)),
        ordinary(without_control(parts, names, where)),
        bpe(parts.tokens, std::move(parts.merges), "", parts.unknown.value_or(-1), where) {
    parts.merges.clear();
    const auto name = [&](int32_t id, const std::string& bytes, const std::string& token) {
      const auto [at, fresh] = bytes_by_id.try_emplace(id, bytes);
      TENON_CHECK(Model, fresh, where) << "token '" << token << "' has the id " << id
                                       << ", which another token has too";
      size = std::max(size, id + 1);
    };
    std::unordered_set<std::string_view> added;
    for (const AddedToken& token : parts.added) {
      added.insert(token.content);
      name(token.id, token.normalized && parts.nfc ? nfc(token.content) : token.content, token.content);
      if (token.special) special.insert(token.id);
    }
    for (const auto& [token, id] : parts.tokens) {
      if (added.count(token)) continue;  // check_added verified that it has the same id
      if (parts.whole_words) words.emplace(bytes_of(token), id);
      name(id, bytes_of(token), token);
    }
    for (const AddedToken& token : parts.added) parts.tokens.emplace(token.content, token.id);
  }

  // Encodes normalised text without added tokens. `with_control`: merges may make control tokens, as in the file.
  void encode_words(std::string_view text, bool with_control, std::vector<int32_t>& out) const {
    const BytePairEncoder& encoder = with_control || !ordinary ? bpe : *ordinary;
    parts.pre_tokenizer.each(text, [&](std::string_view word) {
      const auto whole = parts.whole_words ? words.find(std::string(word)) : words.end();
      if (whole != words.end())
        out.push_back(whole->second);
      else
        encoder.encode(word, out);
    });
  }

  // Appends the tokens found by `finder`, and passes the text between them to `f`.
  template <class F>
  static void split(const AddedTokenFinder& finder, std::string_view text, std::vector<int32_t>& out, const F& f) {
    size_t at = 0, resume = 0;  // the next token may begin in the white space that this one takes with it
    AddedTokenFinder::Blanks blanks;
    while (const auto match = finder.empty() ? std::nullopt : finder.find(text, resume, at, blanks)) {
      if (match->begin > at) f(text.substr(at, match->begin - at));
      out.push_back(match->id);
      at = match->end;
      resume = match->token_end;
    }
    if (at < text.size()) f(text.substr(at));
  }

  std::vector<int32_t> encode(std::string_view text, bool added_tokens, std::string_view mark = {}) const {
    if (const auto bad = first_invalid_utf8(text))
      throw Error(ErrorKind::Usage, "text", "invalid UTF-8 at byte " + std::to_string(*bad));
    static const AddedTokenFinder nothing{{}};
    std::vector<int32_t> out;
    split(added_tokens ? raw : nothing, text, out, [&](std::string_view part) {
      const std::string form = parts.nfc ? nfc(part) : std::string(part);
      split(added_tokens ? normal : nothing, form, out, [&](std::string_view words_) {
        if (mark.empty())
          encode_words(words_, added_tokens, out);
        else
          encode_words(without(words_, mark), false, out);
      });
    });
    // The only control token possible here is that of an unknown byte.
    if (!added_tokens) std::erase_if(out, [&](int32_t id) { return special.count(id) > 0; });
    return out;
  }

  TokenizerParts parts;
  AddedTokenFinder raw, normal, control, beginnings;
  std::optional<BytePairEncoder> ordinary;
  BytePairEncoder bpe;
  std::unordered_map<int32_t, std::string> bytes_by_id;
  std::unordered_map<std::string, int32_t> words;  // for whole_words: raw bytes
  std::unordered_set<int32_t> special;
  int32_t size = 0;
};

ByteLevelTokenizer::ByteLevelTokenizer(TokenizerParts parts, const std::string& where) {
  check_added(parts, where);
  const std::unordered_set<std::string> control = control_tokens(parts, where);
  state_ = std::make_shared<const State>(std::move(parts), where, control);
}

std::vector<int32_t> ByteLevelTokenizer::encode(std::string_view text) const { return state_->encode(text, true); }
std::vector<int32_t> ByteLevelTokenizer::encode_ordinary(std::string_view text) const {
  return state_->encode(text, false);
}

std::string ByteLevelTokenizer::break_control(std::string_view text, std::string_view mark,
                                              const std::function<bool(size_t, size_t)>& keep) const {
  std::string out;
  size_t at = 0;
  AddedTokenFinder::Blanks blanks;
  while (const auto match = state_->control.empty() ? std::nullopt : state_->control.find(text, at, at, blanks)) {
    if (keep && keep(match->begin, match->end)) {
      out += text.substr(at, match->end - at);
      at = match->end;
      continue;
    }
    size_t inside = match->begin;
    next_code_point(text, inside);
    out += text.substr(at, inside - at);
    out += mark;
    at = inside;  // another token may begin inside this one
  }
  return out += text.substr(at);
}

std::string ByteLevelTokenizer::break_beginnings(std::string_view text, std::string_view mark) const {
  std::string out;
  size_t at = 0;
  AddedTokenFinder::Blanks blanks;
  while (const auto match = state_->beginnings.find(text, at, at, blanks)) {
    out += text.substr(at, match->end - at);
    if (match->id) out += mark;
    at = match->end;
  }
  return break_control(out += text.substr(at), mark);
}

std::vector<int32_t> ByteLevelTokenizer::encode_marked(std::string_view text, std::string_view mark) const {
  return state_->encode(text, true, mark);
}

std::string ByteLevelTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids)
    if (!skip_special || !is_special(id)) bytes += token_bytes(id);
  return replace_invalid_utf8(bytes);
}

std::string_view ByteLevelTokenizer::token_bytes(int32_t id) const {
  const auto found = state_->bytes_by_id.find(id);
  return found == state_->bytes_by_id.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<int32_t> ByteLevelTokenizer::id_of(std::string_view token) const {
  const auto found = state_->parts.tokens.find(std::string(token));
  return found == state_->parts.tokens.end() ? std::nullopt : std::optional(found->second);
}

bool ByteLevelTokenizer::is_special(int32_t id) const { return state_->special.count(id) > 0; }
int32_t ByteLevelTokenizer::vocab_size() const { return state_->size; }
std::optional<int32_t> ByteLevelTokenizer::bos_id() const { return state_->parts.bos; }
std::optional<int32_t> ByteLevelTokenizer::eos_id() const { return state_->parts.eos; }
std::optional<int32_t> ByteLevelTokenizer::pad_id() const { return state_->parts.pad; }
std::vector<int32_t> ByteLevelTokenizer::encode_whole(std::string_view text) const {
  std::vector<int32_t> ids = prefix();
  const std::vector<int32_t> own = encode(text);
  ids.insert(ids.end(), own.begin(), own.end());
  return ids;
}

const std::vector<int32_t>& ByteLevelTokenizer::prefix() const { return state_->parts.prefix; }
const std::map<std::string, std::string>& ByteLevelTokenizer::named_tokens() const { return state_->parts.named; }
const std::optional<std::string>& ByteLevelTokenizer::chat_template() const { return state_->parts.chat_template; }

std::string StreamDecoder::push(int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) return "";
  held_ += tokenizer_.token_bytes(id);
  const std::string tail = held_.substr(held_.size() - incomplete_utf8_tail(held_));
  held_.resize(held_.size() - tail.size());
  std::string out = replace_invalid_utf8(held_);
  held_ = tail;
  return out;
}

std::string StreamDecoder::finish() {
  std::string out = replace_invalid_utf8(held_);
  held_.clear();
  return out;
}

}  // namespace tenon
