// Splits a template into tokens, trimming white space as transformers configures Jinja: trim_blocks and lstrip_blocks.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tenon::jinja {

enum class TokenKind {
  Data,        ///< text outside tags
  PrintBegin,  ///< {{
  PrintEnd,    ///< }}
  BlockBegin,  ///< {%
  BlockEnd,    ///< %}
  Name,
  String,  ///< its value, with escapes resolved
  Integer,
  Float,
  Operator  ///< ( ) [ ] { } , . : | = == != < <= > >= + - * / // % ~
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;  ///< from 1
};

/// Linear in the template, which must be well-formed UTF-8. Error(Model) with `where` and the line: an unterminated
/// tag, comment or string, a character or bracket out of place.
std::vector<Token> tokenize(std::string_view source, const std::string& where);

/// Whether Python's str.strip() treats it as white space.
bool is_python_space(uint32_t code_point);
/// The text without white space at its end, or at its beginning.
std::string_view without_trailing_space(std::string_view text);
std::string_view without_leading_space(std::string_view text);

}  // namespace tenon::jinja
