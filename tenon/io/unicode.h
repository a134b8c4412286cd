// Unicode as the tokenizers of language models use it: character classes, NFC, and repair of ill-formed UTF-8.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

/// Character classes that word patterns distinguish. Marks (combining accents) are Other: neither \p{L} nor \p{N}.
enum class CharClass : uint8_t {
  Letter,   ///< \p{L}
  Number,   ///< \p{N}: digits, and also ², ½, Ⅷ
  Newline,  ///< carriage return and line feed
  Space,    ///< any other Unicode White_Space
  Other
};

/// The class of a code point, by utf8proc's version of Unicode.
CharClass char_class(uint32_t code_point);
/// Unicode White_Space, which is the meaning of \s here: includes U+0085, but not U+001C to U+001F or U+200B.
inline bool is_white_space(uint32_t code_point) {
  const CharClass c = char_class(code_point);
  return c == CharClass::Space || c == CharClass::Newline;
}

/// NFC of well-formed UTF-8. O(n log n) for any text, because runs of combining marks are sorted rather than swapped
/// into order. Error(Memory) beyond 2^30 bytes.
std::string nfc(std::string_view text);

/// The text with every maximal ill-formed part (Unicode 15, section 3.9) replaced by U+FFFD, as Python's
/// bytes.decode("utf-8", "replace") and Rust's from_utf8_lossy do.
std::string replace_invalid_utf8(std::string_view bytes);

/// Number of bytes (0 to 3) at the end of `bytes` that begin an incomplete character.
size_t incomplete_utf8_tail(std::string_view bytes);

}  // namespace tenon
