// Byte-pair encoding over GPT-2's byte alphabet: symbols, ranked merges, and applying them to one word.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tenon {

/// Bytes as printable characters: 33..126, 161..172 and 174..255 stand for themselves; the other 68 map to U+0100
/// onwards in ascending order (byte 0x20 is "Ġ"). Returns each byte's character in UTF-8.
const std::vector<std::string>& byte_alphabet();
/// Whether byte_alphabet() maps this byte to itself, because it is printable.
bool stands_for_itself(int byte);

/// A vocabulary with merges. Immutable after construction; safe to share between threads.
class BytePairEncoder {
 public:
  /// `tokens` maps a token's text in the byte alphabet to its id; `merges` are pairs of token texts, best first. A
  /// word's last byte carries `suffix` ("</w>" for CLIP, "" for none). A byte without a token becomes `unknown`, or is
  /// left out if `unknown` is negative. Error(Model) at `where` if a merge's parts or its result are not tokens.
  BytePairEncoder(const std::unordered_map<std::string, int32_t>& tokens,
                  std::span<const std::pair<std::string, std::string>> merges, const std::string& suffix,
                  int32_t unknown, const std::string& where);

  /// Appends the ids of one word (raw UTF-8 bytes): repeatedly merges the adjacent pair of lowest rank, leftmost first.
  /// O(n log n) in the length of the word.
  void encode(std::string_view word, std::vector<int32_t>& out) const;

 private:
  struct Merge {
    int32_t rank, id;
  };
  static uint64_t key(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  }

  int32_t inner_[256], last_[256];  // id of a byte inside a word, and at a word's end
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace tenon
