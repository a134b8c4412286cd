// Vocabularies of real models, if scripts in tools/ have fetched them.
#pragma once
#include <filesystem>
#include <optional>

#include "tenon/io/byte_level_tokenizer.h"
#include "tenon/io/tokenizer_parts.h"

namespace io_test {

/// The folder of fetched files.
std::filesystem::path vocabulary_folder();
/// The tokenizer of Qwen2.5 and Qwen3, made from the ranks in qwen.tiktoken; empty if the file is not there.
std::optional<tenon::TokenizerParts> real_qwen();
/// SmolLM2-135M-Instruct as a GGUF file; empty if it is not there.
std::optional<std::filesystem::path> real_smollm2();

}  // namespace io_test
