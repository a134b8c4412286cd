// Presents a GGUF file as the checkpoint that it was made from: tensors under the names that the checkpoint has for
// them. Language models of architectures llama, qwen2 and qwen3 get the names and configuration of transformers.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/core/shape.h"
#include "tenon/io/gguf.h"

namespace tenon {

/// A tensor of the checkpoint: rows of one of the file's tensors, possibly reordered. Valid as long as the file.
struct GgufSlice {
  const GgufTensor* tensor = nullptr;
  Shape shape;
  int64_t first_row = 0;  ///< in the file's tensor
  /// Rows D of an attention head that the file has interleaved, 0 if it has not. Converters to architecture llama
  /// interleave the two halves of a head's rows, row j to 2j and row D/2 + j to 2j + 1, for rotary embeddings of
  /// neighbouring elements.
  int64_t head_rows = 0;

  /// The row of the file's tensor that holds this slice's row `row`.
  int64_t file_row(int64_t row) const;
  /// The bytes that this slice occupies in the file.
  std::span<const std::byte> stored() const;
};

/// Rows `first`, first + 1, ... as numbers; out.size() must be a multiple of a row (the last axis). Reads by rows so
/// that a caller can place them anywhere. Error(Internal) for rows out of range.
void read_rows(const GgufSlice& slice, int64_t first, std::span<float> out);
/// The same, rounded to bf16.
void read_rows_bf16(const GgufSlice& slice, int64_t first, std::span<uint16_t> out);

struct GgufCheckpoint {
  std::map<std::string, GgufSlice> tensors;
  std::vector<std::string> unexpected;  ///< names in the file without a counterpart
};

struct NamedSlice {
  std::string name;
  GgufSlice slice;
};
/// What the checkpoint makes of one of the file's tensors: none if nothing reads it, empty if it has no counterpart.
using GgufNames = std::function<std::optional<std::vector<NamedSlice>>(const GgufTensor& tensor)>;

/// The tensors under the checkpoint's names. Error(Model) for a tensor whose type cannot be converted, a duplicate
/// name.
GgufCheckpoint gguf_checkpoint(const GgufFile& file, const GgufNames& names);
/// The same of a language model. Error(Model) also for another architecture, and heads that do not divide the rows.
GgufCheckpoint gguf_checkpoint(const GgufFile& file);

/// The equivalent of config.json: model_type, hidden_size, num_hidden_layers, ... for architectures llama, qwen2,
/// qwen3. Error(Model) names a key that is missing or has the wrong type.
nlohmann::json gguf_config(const GgufFile& file);

}  // namespace tenon
