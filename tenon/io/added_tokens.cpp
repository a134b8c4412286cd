#include "tenon/io/added_tokens.h"

#include "tenon/core/utf8.h"
#include "tenon/io/unicode.h"

namespace tenon {
namespace {

// Start of the white space that ends at `at`.
size_t space_before(std::string_view text, size_t from, size_t at) {
  while (at > from) {
    size_t begin = at - 1;
    while (begin > from && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
    size_t next = begin;
    if (!is_white_space(next_code_point(text, next))) break;
    at = begin;
  }
  return at;
}

size_t space_behind(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!is_white_space(next_code_point(text, next))) break;
    at = next;
  }
  return at;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens) : token_of_{-1} {
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    int32_t node = 0;
    for (const char byte : token.content) {
      const auto [found, added] = edges_.try_emplace(edge(node, byte), static_cast<int32_t>(token_of_.size()));
      if (added) token_of_.push_back(-1);
      node = found->second;
    }
    token_of_[static_cast<size_t>(node)] = static_cast<int32_t>(tokens_.size());
    begins_[static_cast<uint8_t>(token.content[0])] = true;
    tokens_.push_back(token);
  }
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, size_t at) const {
  int32_t node = 0, best = -1;
  for (; at < text.size(); ++at) {
    const auto next = edges_.find(edge(node, text[at]));
    if (next == edges_.end()) break;
    node = next->second;
    if (token_of_[static_cast<size_t>(node)] >= 0) best = token_of_[static_cast<size_t>(node)];
  }
  return best < 0 ? nullptr : &tokens_[static_cast<size_t>(best)];
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view text, size_t from, size_t floor,
                                                              Blanks& blanks) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<uint8_t>(text[at])]) continue;
    const AddedToken* token = longest_at(text, at);
    if (!token) continue;
    const size_t end = at + token->content.size();
    if (token->rstrip && (end < blanks.begin || end > blanks.end)) blanks = {end, space_behind(text, end)};
    return Match{token->lstrip ? space_before(text, floor, at) : at, token->rstrip ? blanks.end : end, end, token->id};
  }
  return std::nullopt;
}

}  // namespace tenon
