// UTF-8: validation and code points.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenon {

/// The length in bytes of the character at `i`, 0 if it is not well formed (Unicode 15, table 3-7: no surrogates,
/// nothing above U+10FFFF, no overlong forms).
size_t utf8_length(std::string_view text, size_t i);
/// Offset of the first byte that is not part of well-formed UTF-8, or nothing if all of `text` is well formed.
std::optional<size_t> first_invalid_utf8(std::string_view text);

/// Without the byte order mark that some editors put in front of a file's text.
std::string_view without_byte_order_mark(std::string_view text);

/// The code point at `position`, which advances past it. `text` must be well formed there.
uint32_t next_code_point(std::string_view text, size_t& position);

/// Appends the UTF-8 encoding of `code_point` (not a surrogate, at most 0x10ffff) to `out`.
void append_utf8(std::string& out, uint32_t code_point);

}  // namespace tenon
