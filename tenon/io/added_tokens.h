// Tokens that stand beside a vocabulary and are found in the text as they are written: control tokens and the like.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tenon {

/// Bytes of an added token's text. The longest in use have about thirty.
inline constexpr size_t kMaxAddedTokenBytes = 256;

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = true;      ///< a control token: decoding can leave it out
  bool normalized = false;  ///< looked for in the normalised text, after the others were cut out
  bool lstrip = false;      ///< takes the white space in front of it along
  bool rstrip = false;      ///< and behind it
};

/// Finds tokens in text: the leftmost one, and the longest of those that begin there. Immutable after construction.
class AddedTokenFinder {
 public:
  struct Match {
    size_t begin, end;  ///< bytes, with the white space that the token takes along
    int32_t id;
  };

  /// Tokens without content are never found. `tokens` must hold no content twice.
  explicit AddedTokenFinder(const std::vector<AddedToken>& tokens);

  bool empty() const { return tokens_.empty(); }
  /// The first token that begins at or behind byte `from` of `text`. O(n * kMaxAddedTokenBytes) at worst over a whole
  /// text; a byte that begins no token costs one look-up.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  static uint64_t edge(int32_t node, char byte) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(node)) << 8) | static_cast<uint8_t>(byte);
  }
  const AddedToken* longest_at(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<uint64_t, int32_t> edges_;  // a trie: node and byte to node
  std::vector<int32_t> token_of_;                // of a node: index of the token that ends there, or -1
  bool begins_[256] = {};
};

}  // namespace tenon
