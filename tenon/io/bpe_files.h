// Vocabularies and merges as files have them: vocab.json, merges.txt, and the "model" of a tokenizer.json.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tenon {

/// Ids are below this: far above every vocabulary in use.
inline constexpr int32_t kMaxTokenId = 1 << 24;

using TokenIds = std::unordered_map<std::string, int32_t>;           ///< by the token's text in the byte alphabet
using MergeList = std::vector<std::pair<std::string, std::string>>;  ///< best first

/// An object of token ids. Error(Model) names `where`, the token, and what its id is instead.
TokenIds read_token_ids(const nlohmann::json& object, const std::string& where);

/// merges.txt: a version line ("#version: ..."), then one merge of two symbols a line.
MergeList read_merges_text(std::string_view text, const std::string& where);
/// The merges of a tokenizer.json: ["a b", ...] in older files, or [["a", "b"], ...].
MergeList read_merges(const nlohmann::json& array, const std::string& where);
/// One merge, "a b".
std::pair<std::string, std::string> read_merge(std::string_view line, const std::string& where);

}  // namespace tenon
