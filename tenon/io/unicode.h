// Unicode as the tokenizers of language models use it: classes of code points, normal form C, and bytes that are not
// UTF-8.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

/// What a word pattern asks of a code point. Marks (combining accents) are Other: neither \p{L} nor \p{N}.
enum class CharClass : uint8_t {
  Letter,   ///< \p{L}
  Number,   ///< \p{N}: digits, and also ², ½, Ⅷ
  Newline,  ///< carriage return and line feed
  Space,    ///< any other Unicode White_Space
  Other
};

/// The class of a code point, of Unicode as utf8proc has it.
CharClass char_class(uint32_t code_point);
/// Unicode White_Space, which is what \s means here: also U+0085, but not U+001C to U+001F or U+200B.
inline bool is_white_space(uint32_t code_point) {
  const CharClass c = char_class(code_point);
  return c == CharClass::Space || c == CharClass::Newline;
}

/// Normal form C of well-formed UTF-8. O(n log n) whatever the text: a run of combining marks is sorted, not swapped
/// into order. Error(Memory) beyond 2^30 bytes.
std::string nfc(std::string_view text);

/// The text with every maximal ill-formed part (Unicode 15, section 3.9) replaced by U+FFFD, as Python's
/// bytes.decode("utf-8", "replace") and Rust's from_utf8_lossy do.
std::string replace_invalid_utf8(std::string_view bytes);

/// Bytes at the end of `bytes` (0 to 3) that begin a character and need more bytes to be one.
size_t incomplete_utf8_tail(std::string_view bytes);

}  // namespace tenon
