#include "tenon/pipelines/known_words.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "tenon/core/error.h"
#include "tenon/io/clip_text.h"
#include "tenon/io/prompt_weights.h"

namespace tenon {
namespace {

// Endings such as 's, which CLIP splits off, do not count as words.
bool is_word(std::string_view text) {
  return !text.starts_with('\'') && std::any_of(text.begin(), text.end(), [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return code >= 0x80 || (code >= '0' && code <= '9') || (code >= 'a' && code <= 'z');
  });
}

}  // namespace

KnownWords read_known_words(const nlohmann::json& model_index) {
  KnownWords out;
  if (!model_index.is_object() || !model_index.contains("_tenon_knows")) return out;
  const nlohmann::json& kinds = model_index["_tenon_knows"];
  TENON_CHECK(Model, kinds.is_object(), "model_index.json")
      << "_tenon_knows: expected an object of lists of words, found " << kinds.type_name();
  for (const auto& [kind, words] : kinds.items()) {
    const bool good = words.is_array() &&
                      std::all_of(words.begin(), words.end(), [](const nlohmann::json& w) { return w.is_string(); });
    TENON_CHECK(Model, good, "model_index.json") << "_tenon_knows: expected a list of words for each kind";
    out[kind] = words.get<std::vector<std::string>>();
  }
  return out;
}

std::vector<std::string> unknown_words(const KnownWords& known, std::span<const WeightedText> parts) {
  std::vector<std::string> out;
  if (known.empty()) return out;
  std::unordered_set<std::string> seen;  // words already seen, known ones included
  for (const auto& [kind, words] : known) seen.insert(words.begin(), words.end());
  const ClipWords words;
  for (const WeightedText& part : parts)
    words.each(clip_normal_form(part.text), [&](std::string_view word) {
      if (is_word(word) && seen.emplace(word).second) out.emplace_back(word);
    });
  return out;
}

}  // namespace tenon
