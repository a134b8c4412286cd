// Python's methods of strings, on UTF-8.
#pragma once
#include <optional>
#include <string>

#include "tenon/io/jinja/value.h"

namespace tenon::jinja {

/// Each code point becomes one code point, except ß; other letters with two upper-case letters (ﬁ, ŉ, ...) are
/// unchanged.
std::string upper_of(const std::string& text);
std::string lower_of(const std::string& text);
/// First character in upper case, all others in lower case.
std::string capital(const std::string& text);
/// Each word's first letter in upper case. In Python's method a word starts after any uncased character, in Jinja's
/// filter after blanks, hyphens and opening brackets.
std::string titled(const std::string& text, bool python);
enum class Ends { Both, Left, Right };
/// str.strip at these ends, with the given characters, or of white space if there are none.
std::string stripped(const std::string& text, const Value& characters, Ends ends, Budget& budget);
/// Upper bound of the memory for a text's parts.
uint64_t split_bytes(const std::string& text);
List split_at(const std::string& text, const std::string& separator, int64_t most);
List split_at_space(std::string_view text, int64_t most);
/// At most `most` times; negative: everywhere.
std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t most,
                     Budget& budget);
/// Python's int(text, base) and float(text); nothing where Python raises ValueError. Integers beyond 64 bits are
/// refused.
std::optional<int64_t> integer_of(std::string_view text, int64_t base);
std::optional<double> float_of(std::string_view text);

}  // namespace tenon::jinja
