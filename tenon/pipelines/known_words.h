// Models that were trained on a few words only, and what in a prompt such a model has never seen.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// Every word that a model was trained on, by kind ("shapes", "colors", ..). Empty: the model is not limited so.
using KnownWords = std::map<std::string, std::vector<std::string>>;

/// "_tenon_knows" of a model_index.json: an object of lists of words. Nothing if it has no such key. Error(Model) for
/// any other form.
KnownWords read_known_words(const nlohmann::json& model_index);

/// Words of `prompt` that are not among `known`, lower case, each once, in order. Signs of ASCII and endings such as 's
/// are no words. Nothing if `known` is empty. `prompt` must be well-formed UTF-8.
std::vector<std::string> unknown_words(const KnownWords& known, std::string_view prompt);

}  // namespace tenon
