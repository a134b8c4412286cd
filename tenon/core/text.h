// Text for people: numbers, and what comes from files and users.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tenon {

/// Six significant digits, without trailing zeros: "7.5", "0.01", "1e-05".
std::string number_text(double value);

/// Rounded up: "12 MiB".
std::string mebibytes(int64_t bytes);

/// "1 picture", "2 pictures".
std::string counted(int64_t number, const std::string& thing);

/// "a, b, c".
std::string joined(std::span<const std::string> words, std::string_view separator = ", ");

/// Foreign text (a name, a value of a file, an argument) as one line that a terminal can be given: control characters,
/// C1 controls, marks that turn the direction of writing, invisible characters and bytes that are not UTF-8 become
/// \n, \x1b, \u202e, \xff. A backslash stays itself, so that nothing is escaped twice.
std::string escaped(std::string_view foreign);

/// Bytes that a single foreign value may take in a message.
inline constexpr size_t kShownBytes = 120;
/// Bytes of a whole message, on a terminal or in a log.
inline constexpr size_t kMessageBytes = 480;
/// escaped(); of a longer text its beginning and end with " .. " between them, `most` bytes together.
std::string shown(std::string_view foreign, size_t most = kShownBytes);

/// Foreign text as valid UTF-8, for JSON and PNG files: only bytes that are not UTF-8 are escaped.
std::string as_utf8(std::string_view foreign);

}  // namespace tenon
