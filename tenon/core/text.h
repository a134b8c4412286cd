// Text for people: numbers, and text from files and users.
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

/// Without spaces, tabs and carriage returns at its ends.
std::string_view trimmed(std::string_view text);

/// "a, b, c".
std::string joined(std::span<const std::string> words, std::string_view separator = ", ");

/// Foreign text (a name, a value of a file, an argument) as one line that is safe for a terminal: control characters,
/// C1 controls, bidirectional marks, invisible characters and bytes that are not UTF-8 become \n, \x1b, \u202e, \xff. A
/// backslash is unchanged, so that nothing is escaped twice.
std::string escaped(std::string_view foreign);

/// Most bytes of a single foreign value in a message.
inline constexpr size_t kShownBytes = 120;
/// Most bytes of a whole message, on a terminal or in a log.
inline constexpr size_t kMessageBytes = 480;
/// escaped(); a longer text becomes its beginning and end with " .. " between them, `most` bytes in total.
std::string shown(std::string_view foreign, size_t most = kShownBytes);

/// Foreign text as valid UTF-8, for JSON and PNG files: escapes only bytes that are not UTF-8.
std::string as_utf8(std::string_view foreign);

}  // namespace tenon
