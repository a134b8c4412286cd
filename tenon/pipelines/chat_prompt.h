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
/// Ids of that text. Only the template can produce control tokens; those spelled out in a message are encoded as plain
/// characters. Errors as render_chat.
std::vector<int32_t> encode_chat(const ByteLevelTokenizer& tokenizer, const nlohmann::ordered_json& messages,
                                 const std::string& name);

}  // namespace tenon
