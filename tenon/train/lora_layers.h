// Layers of a denoiser that get a trained branch, and files of LoRAs.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tenon/models/weights.h"

namespace tenon::train {

/// Every linear layer, as a target.
inline constexpr const char* kAllLinear = "all-linear";
/// The layers of a denoiser's attention, by diffusers' names.
std::vector<std::string> attention_targets();

/// Names of the weights whose layers are called one of `targets`, or end with "." and one of them, as PEFT matches.
/// Error(Usage) for a target that no linear layer of the model is, with those that there are.
std::set<std::string> target_weights(const WeightShapes& model, const std::vector<std::string>& targets);
/// Shapes of A and B beside these weights.
WeightShapes branch_shapes(const WeightShapes& model, const std::set<std::string>& weights, int64_t rank);

/// Whose names a file's tensors have.
enum class LoraFormat : uint8_t {
  Diffusers,  ///< PEFT's, which diffusers reads
  Comfy,      ///< ComfyUI's: "diffusion_model.<layer>"; of a UNet, as Kohya
  Kohya       ///< "lora_unet_<layer>", lora_down and lora_up with an alpha each
};
std::vector<std::string> lora_format_names();
/// Error(Usage) for another name.
LoraFormat lora_format_of(const std::string& name);

/// What PEFT notes of a LoRA of `component`, for the metadata of a file in diffusers' form.
std::map<std::string, std::string> lora_metadata(const std::string& component, int64_t rank, double alpha,
                                                 const std::vector<std::string>& targets);
/// Writes the file `from`, of `component` in diffusers' form, in another. Error(Model).
void convert_lora(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& component,
                  double alpha, LoraFormat format);

}  // namespace tenon::train
