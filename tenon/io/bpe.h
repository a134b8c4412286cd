// Byte-pair encoding over the byte alphabet of GPT-2: symbols, ranked merges, and their application to one word.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tenon {

/// Bytes as printable characters: 33..126, 161..172 and 174..255 stand for themselves, the other 68 for U+0100 onwards
/// in ascending order (byte 0x20 is "Ġ"). Returns the UTF-8 form of each byte's character.
const std::vector<std::string>& byte_alphabet();
/// Whether a byte is printable and so stands for itself in byte_alphabet().
bool stands_for_itself(int byte);

/// A vocabulary with merges. Immutable after construction; safe to share between threads.
class BytePairEncoder {
 public:
  /// `tokens` maps a token's text in the byte alphabet to its id; `merges` are pairs of token texts, best first. A
  /// word's last byte carries `suffix` ("</w>" for CLIP, "" for none); a byte without a token becomes `unknown`, or is
  /// left out if that is negative.
  /// Error(Model) with `where` if a merge's parts or its result are not tokens.
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

  int32_t inner_[256], last_[256];  // id of a byte inside a word, and at its end
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace tenon
