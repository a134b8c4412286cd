// Vocabularies of real models, where scripts in tools/ have fetched them.
#pragma once
#include <filesystem>
#include <optional>

#include "tenon/io/byte_level_tokenizer.h"

namespace io_test {

/// Where the scripts put what they fetch.
std::filesystem::path vocabulary_folder();
/// Qwen2.5's and Qwen3's tokenizer, made from the ranks of qwen.tiktoken; nothing if the file is not there.
std::optional<tenon::TokenizerParts> real_qwen();
/// SmolLM2-135M-Instruct as a GGUF file; nothing if it is not there.
std::optional<std::filesystem::path> real_smollm2();

}  // namespace io_test
