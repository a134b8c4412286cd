// A conversation as a model's chat template writes it, and as ids.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/io/byte_level_tokenizer.h"

namespace tenon {

/// The messages in the tokenizer's chat template, followed by the beginning of an answer. Error(Model) if there is no
/// template; Error(Usage) if it refuses the messages. `name` is the model's, for errors.
std::string render_chat(const ByteLevelTokenizer& tokenizer, const nlohmann::ordered_json& messages,
                        const std::string& name);
/// Ids of that text. Only the template can produce control tokens; those spelled out in messages, in keys and over
/// several texts too, are encoded as plain characters (one that begins with a letter or digit: if one text spells all
/// of it). Errors as render_chat.
std::vector<int32_t> encode_chat(const ByteLevelTokenizer& tokenizer, const nlohmann::ordered_json& messages,
                                 const std::string& name);

}  // namespace tenon
