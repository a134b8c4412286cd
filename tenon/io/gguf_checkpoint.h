// A GGUF file as the checkpoint that it was made from: the tensors and the configuration under the names that
// transformers (llama, qwen2, qwen3) and diffusers (lumina2, which is what files call Z-Image) give them.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tenon/core/shape.h"
#include "tenon/io/gguf.h"

namespace tenon {

/// A tensor of the checkpoint: rows of a tensor of the file, perhaps in another order. Valid as long as the file.
struct GgufSlice {
  const GgufTensor* tensor = nullptr;
  Shape shape;
  int64_t first_row = 0;  ///< of the file's tensor
  /// Rows of an attention head that the file has interleaved, 0 if it has not. Converters to architecture llama lay the
  /// two halves of a head's rows side by side, row j at 2j and row D/2 + j at 2j + 1, for a rotation of neighbours.
  int64_t head_rows = 0;

  /// The file's row that is row `row` here.
  int64_t file_row(int64_t row) const;
  /// The bytes that it is stored in.
  std::span<const std::byte> stored() const;
};

/// Rows `first`, first + 1, ... as numbers, a row being the last axis; out.size() is a multiple of it. Row by row, so
/// that a caller can put them wherever they belong. Error(Internal) for rows that are not there.
void read_rows(const GgufSlice& slice, int64_t first, std::span<float> out);
/// The same, rounded to bf16.
void read_rows_bf16(const GgufSlice& slice, int64_t first, std::span<uint16_t> out);

struct GgufCheckpoint {
  std::map<std::string, GgufSlice> tensors;
  std::vector<std::string> unexpected;  ///< the file's names that have no counterpart
};

/// The tensors under the checkpoint's names. Error(Model) for an architecture without a table (the message lists those
/// that have one), a tensor whose type cannot be converted, heads that do not divide the rows, one name twice.
GgufCheckpoint gguf_checkpoint(const GgufFile& file);

/// What config.json would say: model_type, hidden_size, num_hidden_layers, ... of architectures llama, qwen2, qwen3.
/// Error(Model) names a key that is missing or of a wrong type.
nlohmann::json gguf_config(const GgufFile& file);

}  // namespace tenon
