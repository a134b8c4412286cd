#include "tenon/io/pre_tokenizer.h"

#include <array>
#include <optional>

#include "tenon/core/error.h"
#include "tenon/core/utf8.h"
#include "tenon/io/json.h"
#include "tenon/io/unicode.h"

namespace tenon {
namespace {
using nlohmann::json;

constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr int kMaxNested = 8;  // nesting of Sequences
constexpr size_t kMaxSteps = 16;

// A character's end and class, read ahead of the scan.
struct Character {
  size_t end;
  CharClass kind;
};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool at_end(size_t i) const { return i >= text_.size(); }
  Character at(size_t i) const {
    const uint32_t c = next_code_point(text_, i);
    return {i, char_class(c)};
  }
  bool is(size_t i, CharClass kind) const { return !at_end(i) && at(i).kind == kind; }
  bool is_blank(size_t i) const { return !at_end(i) && text_[i] == ' '; }

  // End of the run of characters of one class that begins at i.
  size_t run_end(size_t i, CharClass kind, size_t most = std::string_view::npos) const {
    for (size_t n = 0; n < most && !at_end(i); ++n) {
      const Character c = at(i);
      if (c.kind != kind) break;
      i = c.end;
    }
    return i;
  }

  // End of 's 't 're 've 'm 'll 'd at i, or i if there is none. U+017F folds to s.
  size_t contraction_end(size_t i, bool any_case) const {
    if (at_end(i) || text_[i] != '\'' || at_end(i + 1)) return i;
    const auto lower = [&](size_t k) {
      const char c = k < text_.size() ? text_[k] : '\0';
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char first = lower(i + 1), second = lower(i + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return i + 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
      return i + 3;
    if (any_case && text_.substr(i + 1).starts_with("\xc5\xbf")) return i + 3;
    return i;
  }

  // \s+(?!\S)|\s+ : white space before a word leaves its last character to the word.
  size_t space_end(size_t i) const {
    size_t last = i, end = i;
    while (!at_end(end)) {
      const Character c = at(end);
      if (c.kind != CharClass::Space && c.kind != CharClass::Newline) break;
      last = end;
      end = c.end;
    }
    return at_end(end) || last == i ? end : last;
  }

  // \s*[\r\n]+ : up to the last line end in the white space, or i if there is none.
  size_t lines_end(size_t i) const {
    size_t out = i;
    while (!at_end(i)) {
      const Character c = at(i);
      if (c.kind != CharClass::Space && c.kind != CharClass::Newline) break;
      i = c.end;
      if (c.kind == CharClass::Newline) out = i;
    }
    return out;
  }

  size_t gpt2(size_t i) const {
    if (const size_t end = contraction_end(i, false); end != i) return end;
    const size_t word = is_blank(i) ? i + 1 : i;
    if (!at_end(word)) {
      const CharClass kind = at(word).kind;
      if (kind != CharClass::Space && kind != CharClass::Newline) return run_end(word, kind);
    }
    return space_end(i);
  }

  size_t qwen2(size_t i, size_t max_digits) const {
    if (const size_t end = contraction_end(i, true); end != i) return end;
    const Character first = at(i);
    if (first.kind == CharClass::Letter) return run_end(i, CharClass::Letter);
    const bool may_lead = first.kind != CharClass::Newline && first.kind != CharClass::Number;
    if (may_lead && is(first.end, CharClass::Letter)) return run_end(first.end, CharClass::Letter);
    if (first.kind == CharClass::Number) return run_end(i, CharClass::Number, max_digits);
    const size_t word = is_blank(i) ? i + 1 : i;
    if (is(word, CharClass::Other)) return run_end(run_end(word, CharClass::Other), CharClass::Newline);
    if (const size_t end = lines_end(i); end != i) return end;
    return space_end(i);
  }

  size_t digits(size_t i, bool each) const {
    if (at(i).kind == CharClass::Number) return each ? at(i).end : run_end(i, CharClass::Number);
    while (!at_end(i) && at(i).kind != CharClass::Number) i = at(i).end;
    return i;
  }

 private:
  std::string_view text_;
};

std::string type_of(const json& description, const std::string& where) {
  TENON_CHECK(Model, description.is_object() && description.contains("type") && description["type"].is_string(), where)
      << "pre_tokenizer: expected an object with a string 'type', found " << description.type_name();
  return description["type"].get<std::string>();
}

bool flag(const json& description, const char* key, bool otherwise, const std::string& where) {
  return json_flag(description, key, where, otherwise, "pre_tokenizer: ");
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

PreTokenizer::Step PreTokenizer::step_of(WordPattern pattern) {
  return pattern == WordPattern::Gpt2 ? Step::Gpt2 : pattern == WordPattern::Qwen2 ? Step::Qwen2 : Step::Llama3;
}

PreTokenizer::PreTokenizer(WordPattern pattern) : steps_{step_of(pattern)}, byte_level_(true) {}

PreTokenizer PreTokenizer::from_json(const json& description, const std::string& where) {
  PreTokenizer out;
  if (!description.is_null()) out.add(description, where, 0);
  TENON_CHECK(Model, out.byte_level_, where)
      << "pre_tokenizer: expected a ByteLevel step; other kinds of byte-pair encoding are not read";
  return out;
}

void PreTokenizer::add(const json& description, const std::string& where, int depth) {
  TENON_CHECK(Model, steps_.size() < kMaxSteps && depth < kMaxNested, where)
      << "pre_tokenizer: more than " << kMaxSteps << " steps, or nested deeper than " << kMaxNested << " levels";
  const std::string type = type_of(description, where);
  // Later steps would see the byte alphabet instead of the text.
  TENON_CHECK(Model, !byte_level_, where) << "pre_tokenizer: '" << type << "' after ByteLevel is not supported";
  if (type == "Sequence") {
    const auto list = description.find("pretokenizers");
    TENON_CHECK(Model, list != description.end() && list->is_array() && list->size() <= kMaxSteps, where)
        << "pre_tokenizer: expected a Sequence to have an array 'pretokenizers' of at most " << kMaxSteps;
    for (const json& item : *list) add(item, where, depth + 1);
  } else if (type == "ByteLevel") {
    add_byte_level(description, where);
  } else if (type == "Digits") {
    steps_.push_back(flag(description, "individual_digits", false, where) ? Step::EachDigit : Step::DigitRuns);
  } else if (type == "Split") {
    add_split(description, where);
  } else {
    throw Error(
        ErrorKind::Model, where,
        "pre_tokenizer '" + type + "' is not supported; expected ByteLevel, Split, Digits or a Sequence of them");
  }
}

void PreTokenizer::add_byte_level(const json& description, const std::string& where) {
  if (flag(description, "add_prefix_space", true, where)) steps_.push_back(Step::PrefixSpace);
  flag(description, "trim_offsets", true, where);  // only checked: offsets are not computed
  if (flag(description, "use_regex", true, where)) steps_.push_back(Step::Gpt2);
  byte_level_ = true;
}

void PreTokenizer::add_split(const json& description, const std::string& where) {
  const auto pattern = description.find("pattern");
  const std::string regex = pattern != description.end() && pattern->is_object() ? text_of(*pattern, "Regex") : "";
  const std::array<std::pair<const char*, Step>, 3> known = {
      {{kGpt2, Step::Gpt2}, {kQwen2, Step::Qwen2}, {kLlama3, Step::Llama3}}};
  std::optional<Step> step;
  for (const auto& [text, s] : known)
    if (regex == text) step = s;
  TENON_CHECK(Model, step, where) << "pre_tokenizer: splitting by '"
                                  << (regex.empty() && pattern != description.end() ? pattern->dump() : regex)
                                  << "' is not supported; expected the pattern of GPT-2, Qwen2 or Llama 3";
  // These patterns match everything, so keeping only the matches equals isolating them.
  const std::string behavior = text_of(description, "behavior");
  const bool invert = flag(description, "invert", false, where);
  TENON_CHECK(Model, (behavior == "Isolated" && !invert) || (behavior == "Removed" && invert), where)
      << "pre_tokenizer: Split with behavior '" << behavior << "' and invert " << (invert ? "true" : "false")
      << " is not supported; expected Isolated, not inverted";
  steps_.push_back(*step);
}

json PreTokenizer::json_of_gguf_name(std::string_view name, const std::string& where) {
  const auto bytes = [](bool words) {
    return json{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", words}};
  };
  const auto sequence = [](const json& first, const json& second) {
    return json{{"type", "Sequence"}, {"pretokenizers", {first, second}}};
  };
  const auto split = [](const char* pattern) {
    return json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  };
  if (name == "gpt-2") return bytes(true);
  if (name == "qwen2") return sequence(split(kQwen2), bytes(false));
  if (name == "llama-bpe" || name == "llama3" || name == "llama-v3") return sequence(split(kLlama3), bytes(false));
  TENON_CHECK(Model, name == "smollm", where)
      << "tokenizer.ggml.pre '" << name << "' is not supported; expected gpt-2, qwen2, llama-bpe or smollm";
  return sequence({{"type", "Digits"}, {"individual_digits", true}}, bytes(true));
}

PreTokenizer PreTokenizer::from_gguf_name(std::string_view name, const std::string& where) {
  return from_json(json_of_gguf_name(name, where), where);
}

void PreTokenizer::each(std::string_view text, const std::function<void(std::string_view)>& f) const {
  if (!text.empty()) run(0, text, f);
}

void PreTokenizer::run(size_t step, std::string_view text, const std::function<void(std::string_view)>& f) const {
  if (step == steps_.size()) {
    f(text);
    return;
  }
  if (steps_[step] == Step::PrefixSpace) {
    if (text.starts_with(' '))
      run(step + 1, text, f);
    else
      run(step + 1, std::string(" ").append(text), f);
    return;
  }
  const Scanner scan(text);
  for (size_t i = 0, end = 0; i < text.size(); i = end) {
    switch (steps_[step]) {
      case Step::Gpt2:
        end = scan.gpt2(i);
        break;
      case Step::Qwen2:
        end = scan.qwen2(i, 1);
        break;
      case Step::Llama3:
        end = scan.qwen2(i, 3);
        break;
      case Step::EachDigit:
        end = scan.digits(i, true);
        break;
      case Step::DigitRuns:
        end = scan.digits(i, false);
        break;
      case Step::PrefixSpace:
        break;
    }
    run(step + 1, text.substr(i, end - i), f);
  }
}

}  // namespace tenon
