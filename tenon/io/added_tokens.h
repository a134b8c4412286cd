// Added tokens: control tokens and others in addition to a vocabulary, matched in raw text as written.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tenon {

/// Longest text of an added token, in bytes. The longest in use have about thirty.
inline constexpr size_t kMaxAddedTokenBytes = 256;

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = true;      ///< a control token; decoding can leave it out
  bool normalized = false;  ///< matched in the normalised text, after the other added tokens were cut out
  bool lstrip = false;      ///< the match includes white space before it
  bool rstrip = false;      ///< the match includes white space after it
};

/// Finds added tokens in text: leftmost first, longest among those that begin there. Immutable after construction.
class AddedTokenFinder {
 public:
  struct Match {
    size_t begin, end;  ///< in bytes, including the white space that the token takes with it
    size_t token_end;   ///< of the token itself; the next may begin here
    int32_t id;
  };

  /// Tokens with empty content are never found. No two of `tokens` may have the same content.
  explicit AddedTokenFinder(const std::vector<AddedToken>& tokens);

  bool empty() const { return tokens_.empty(); }
  /// White space of a text, in bytes.
  struct Blanks {
    size_t begin = 1, end = 0;  ///< none known
  };

  /// The first token at or after byte `from` of `text`, with white space before it back to byte `floor`. `blanks`: what
  /// calls for this text have found, so that none is read twice. Over a whole text at worst O(n * kMaxAddedTokenBytes);
  /// a byte that begins no token costs one look-up.
  std::optional<Match> find(std::string_view text, size_t from, size_t floor, Blanks& blanks) const;

 private:
  static uint64_t edge(int32_t node, char byte) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(node)) << 8) | static_cast<uint8_t>(byte);
  }
  const AddedToken* longest_at(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<uint64_t, int32_t> edges_;  // a trie: (node, byte) to node
  std::vector<int32_t> token_of_;                // by node: index of the token that ends there, or -1
  bool begins_[256] = {};
};

}  // namespace tenon
