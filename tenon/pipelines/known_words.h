// For models that were trained on a few words only: the words of a prompt that such a model has never seen.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace tenon {

struct WeightedText;

/// All words that a model was trained on, by kind ("shapes", "colors", ..). Empty: the model has no such limit.
using KnownWords = std::map<std::string, std::vector<std::string>>;

/// Reads "_tenon_knows" of a model_index.json: an object of lists of words. Empty if there is no such key. Error(Model)
/// for any other form.
KnownWords read_known_words(const nlohmann::json& model_index);

/// Words of a prompt's `parts`, as a model reads them, that are not in `known`, in lower case, without duplicates, in
/// order. ASCII punctuation and endings such as 's are ignored. Empty if `known` is empty. Texts must be well-formed
/// UTF-8.
std::vector<std::string> unknown_words(const KnownWords& known, std::span<const WeightedText> parts);

}  // namespace tenon
