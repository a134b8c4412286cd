// LoRA: changes to a model's weights, W + w (alpha / r) B A, from the files of training tools: PEFT and diffusers
// (older ones too), kohya, single-file names (ComfyUI), and LyCORIS's LoKr, whose change is a Kronecker product.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tenon/io/safetensors.h"
#include "tenon/models/lora_names.h"
#include "tenon/models/lora_report.h"

namespace tenon {

/// The change of one matrix [rows, columns]; a filter's columns are its channels, kernel rows and kernel columns.
struct LoraMatrix {
  int64_t rows = 0, columns = 0;
  double scale = 1;             ///< alpha / r
  int64_t rank = 0;             ///< r; 0: a Kronecker product
  std::vector<float> down, up;  ///< A [r, columns], B [rows, r]; or the factors [rows / n, columns / m] and [n, m]
  int64_t inner_rows = 0, inner_columns = 0;  ///< n and m of a Kronecker product

  /// values += factor * scale * (row `row` of B A), `columns` of them, summed in f32.
  void add_row(int64_t row, double factor, std::span<float> values) const;
};

/// What a layer of the file does to one weight.
struct LoraChange {
  LoraTarget target;
  std::shared_ptr<const LoraMatrix> matrix;
};

struct Lora {
  std::string file;                                                       ///< for messages
  std::map<std::string, std::map<std::string, LoraChange>> changes = {};  ///< by component and tensor
  LoraReport report = {};
};

/// Whether tensors that the model has no place for are an error or left out.
enum class LoraRest : uint8_t { Refused, LeftOut };

/// Reads a LoRA for the model that `names` describes. Error(Model) names file and tensor: none or only some of its
/// tensors belong to this model, or a tensor has a shape that does not fit its weight, holds a NaN or an infinity, or
/// is of an unsupported kind (LoHa, DoRA, Tucker). `config`: PEFT's adapter_config.json, if there is one. Takes time
/// and memory in proportion to the file and to the weights that it changes; the file is not needed afterwards.
Lora read_lora(const SafetensorsFile& file, const LoraNames& names, LoraRest rest, const nlohmann::json& config = {});
/// The same for a file on disk, with the adapter_config.json next to an adapter_model.safetensors.
Lora read_lora(const std::filesystem::path& path, const LoraNames& names, LoraRest rest);

}  // namespace tenon
