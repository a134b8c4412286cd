#define PCRE2_CODE_UNIT_WIDTH 8
#include "tenon/io/clip_text.h"

#include <pcre2.h>
#include <utf8proc.h>

#include <cstdlib>

#include "tenon/core/error.h"
#include "tenon/core/utf8.h"

namespace tenon {
namespace {

bool is_any_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

void append_lower(std::string& out, uint32_t c) {
  if (c == 0x130) {  // İ, the only letter whose lower case is two code points: i and a combining dot
    out += "i\xcc\x87";
  } else {
    append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

// Words: contractions, runs of letters, single digits, runs of other characters that are not white space. White space
// is spelled out, because the library's \s has one character more than Unicode's White_Space.
#define TENON_SPACE R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
constexpr const char* kWord =
    R"(<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^)" TENON_SPACE R"(\p{L}\p{N}]+)";
#undef TENON_SPACE

// Normalisation sorts the marks of a letter by swapping neighbours; runs up to this length cost little.
constexpr int kMaxMarks = 256;

void check_marks(std::string_view text) {
  int marks = 0;
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(next_code_point(text, i));
    marks = utf8proc_get_property(c)->combining_class ? marks + 1 : 0;
    TENON_CHECK(Usage, marks <= kMaxMarks, "prompt") << "has more than " << kMaxMarks << " combining marks in a row";
  }
}

bool is_special(std::string_view word) { return word == "<|startoftext|>" || word == "<|endoftext|>"; }

}  // namespace

std::string clip_normal_form(std::string_view text) {
  check_marks(text);
  utf8proc_uint8_t* mapped = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                               static_cast<utf8proc_ssize_t>(text.size()), &mapped, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  TENON_CHECK(Usage, length >= 0, "prompt") << "cannot be normalised: " << utf8proc_errmsg(length);
  const std::string_view composed(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
  std::string out;
  out.reserve(composed.size());
  bool blank = false;
  for (size_t i = 0; i < composed.size();) {
    const uint32_t c = next_code_point(composed, i);
    const bool space = is_any_space(c);
    if (space && !blank) out += ' ';
    if (!space) append_lower(out, c);
    blank = space;
  }
  return out;
}

struct ClipWords::Pattern {
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code{nullptr, &pcre2_code_free};
};

ClipWords::ClipWords() {
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto pattern = std::make_unique<Pattern>();
  pattern->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kWord), PCRE2_ZERO_TERMINATED,
                                    PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
  TENON_CHECK(Internal, pattern->code, "tokenizer") << "word pattern: error " << error << " at " << offset;
  pattern_ = std::move(pattern);
}
ClipWords::ClipWords(ClipWords&&) noexcept = default;
ClipWords& ClipWords::operator=(ClipWords&&) noexcept = default;
ClipWords::~ClipWords() = default;

void ClipWords::each(std::string_view text, const std::function<void(std::string_view)>& f) const {
  const pcre2_code* code = pattern_->code.get();
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code, nullptr), &pcre2_match_data_free);
  TENON_CHECK(Memory, match, "tokenizer") << "out of memory";
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; at < text.size();) {
    const int found = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) return;
    TENON_CHECK(Internal, found > 0, "tokenizer") << "word search failed with error " << found;
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    const std::string_view word = text.substr(range[0], range[1] - range[0]);
    if (is_special(word)) {
      // transformers splits every word again with GPT-2's pattern; only these words fall into more than one piece.
      f(word.substr(0, 2));
      f(word.substr(2, word.size() - 4));
      f(word.substr(word.size() - 2));
    } else {
      f(word);
    }
    at = range[1];
  }
}

}  // namespace tenon
