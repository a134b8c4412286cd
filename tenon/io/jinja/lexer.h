// A template as tokens, with white space trimmed as transformers sets Jinja up: trim_blocks and lstrip_blocks.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tenon::jinja {

enum class TokenKind {
  Data,        ///< text outside of tags
  PrintBegin,  ///< {{
  PrintEnd,    ///< }}
  BlockBegin,  ///< {%
  BlockEnd,    ///< %}
  Name,
  String,  ///< its value, escapes resolved
  Integer,
  Float,
  Operator  ///< ( ) [ ] { } , . : | = == != < <= > >= + - * / // % ~
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;  ///< from 1
};

/// Linear in the template, which must be well-formed UTF-8. Error(Model) with `where` and the line: a tag, comment or
/// string that does not end, a character or bracket that does not belong.
std::vector<Token> tokenize(std::string_view source, const std::string& where);

/// What Python's str.strip() takes for white space.
bool is_python_space(uint32_t code_point);
/// The text without white space at its end, and at its beginning.
std::string_view without_trailing_space(std::string_view text);
std::string_view without_leading_space(std::string_view text);

}  // namespace tenon::jinja
