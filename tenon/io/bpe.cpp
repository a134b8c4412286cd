#include "tenon/io/bpe.h"

#include <queue>
#include <tuple>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/core/utf8.h"

namespace tenon {
namespace {
constexpr size_t kSymbolBytes = 60;  // shown of a symbol in a message
}

bool stands_for_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

const std::vector<std::string>& byte_alphabet() {
  static const std::vector<std::string> alphabet = [] {
    std::vector<std::string> out(256);
    uint32_t spare = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      append_utf8(out[b], stands_for_itself(static_cast<int>(b)) ? b : spare++);
    }
    return out;
  }();
  return alphabet;
}

BytePairEncoder::BytePairEncoder(const std::unordered_map<std::string, int32_t>& tokens,
                                 std::span<const std::pair<std::string, std::string>> merges, const std::string& suffix,
                                 int32_t unknown, const std::string& where) {
  const auto id_or = [&](const std::string& token, int32_t otherwise) {
    const auto found = tokens.find(token);
    return found == tokens.end() ? otherwise : found->second;
  };
  for (size_t b = 0; b < 256; ++b) {
    inner_[b] = id_or(byte_alphabet()[b], unknown);
    last_[b] = id_or(byte_alphabet()[b] + suffix, unknown);
  }
  merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const int32_t a = id_or(left, -1), b = id_or(right, -1), joined = id_or(left + right, -1);
    TENON_CHECK(Model, a >= 0 && b >= 0 && joined >= 0, where)
        << "merge " << rank << " ('" << shown(left, kSymbolBytes) << "' '" << shown(right, kSymbolBytes) << "'): '"
        << shown(a < 0   ? left
                 : b < 0 ? right
                         : left + right,
                 kSymbolBytes)
        << "' is not in the vocabulary";
    merges_[key(a, b)] = {static_cast<int32_t>(rank), joined};
  }
}

void BytePairEncoder::encode(std::string_view word, std::vector<int32_t>& out) const {
  // A doubly linked list of symbols; one that was merged into another has id -1.
  struct Symbol {
    int32_t id;
    int64_t previous, next;
  };
  using Candidate = std::tuple<int32_t, int64_t, int32_t, int32_t, int32_t>;  // rank, position, left, right, merged id
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    const auto byte = static_cast<uint8_t>(word[i]);
    const auto position = static_cast<int64_t>(symbols.size());
    const int32_t id = i + 1 == word.size() ? last_[byte] : inner_[byte];
    if (id >= 0) symbols.push_back({id, position - 1, position + 1});
  }
  const auto n = static_cast<int64_t>(symbols.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto at = [&](int64_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  const auto propose = [&](int64_t i) {
    if (i < 0 || at(i).next >= n) return;
    const int32_t left = at(i).id, right = at(at(i).next).id;
    const auto found = merges_.find(key(left, right));
    if (found != merges_.end()) queue.emplace(found->second.rank, i, left, right, found->second.id);
  };
  for (int64_t i = 0; i < n; ++i) propose(i);
  while (!queue.empty()) {
    const auto [rank, i, left, right, id] = queue.top();
    queue.pop();
    const int64_t j = at(i).next;
    if (at(i).id != left || j >= n || at(j).id != right) continue;  // one of the two was merged in the meantime
    at(i) = {id, at(i).previous, at(j).next};
    at(j).id = -1;
    if (at(i).next < n) at(at(i).next).previous = i;
    propose(at(i).previous);
    propose(i);
  }
  for (int64_t i = 0; i < n; i = at(i).next) out.push_back(at(i).id);
}

}  // namespace tenon
