// Reads vocabularies and merges from files: vocab.json, merges.txt, and the "model" of a tokenizer.json.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tenon {

/// Upper bound of token ids, far above every vocabulary in use.
inline constexpr int32_t kMaxTokenId = 1 << 24;

using TokenIds = std::unordered_map<std::string, int32_t>;           ///< by the token's text in the byte alphabet
using MergeList = std::vector<std::pair<std::string, std::string>>;  ///< best first

/// Reads an object that maps tokens to ids. Error(Model) names `where`, the token, and the value found in place of an
/// id.
TokenIds read_token_ids(const nlohmann::json& object, const std::string& where);

/// Reads merges.txt: a version line ("#version: ..."), then one merge of two symbols per line.
MergeList read_merges_text(std::string_view text, const std::string& where);
/// Reads the merges of a tokenizer.json: ["a b", ...] in older files, or [["a", "b"], ...].
MergeList read_merges(const nlohmann::json& array, const std::string& where);
/// Parses one merge, "a b".
std::pair<std::string, std::string> read_merge(std::string_view line, const std::string& where);

}  // namespace tenon
