// Layers of a denoiser that get a trained side branch, and LoRA files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tenon/models/weights.h"

namespace tenon::train {

/// Target that stands for every linear layer.
inline constexpr const char* kAllLinear = "all-linear";
/// The attention layers of a denoiser, by diffusers' names.
std::vector<std::string> attention_targets();

/// Names of the weights whose layer name is one of `targets` or ends with "." and one of them, as PEFT matches.
/// Error(Usage) for a target that matches no linear layer of the model; lists the possible ones.
std::set<std::string> target_weights(const WeightShapes& model, const std::vector<std::string>& targets);
/// Shapes of A and B for these weights. Error(Usage) for one that is not a linear layer's.
WeightShapes branch_shapes(const WeightShapes& model, const std::set<std::string>& weights, int64_t rank);

/// The naming convention of a file's tensors.
enum class LoraFormat : uint8_t {
  Diffusers,  ///< PEFT's, as read by diffusers
  Comfy,      ///< ComfyUI's: "diffusion_model.<layer>"; for a UNet same as Kohya
  Kohya       ///< "lora_unet_<layer>", with lora_down, lora_up and alpha each
};
std::vector<std::string> lora_format_names();
/// Error(Usage) for another name.
LoraFormat lora_format_of(const std::string& name);

/// PEFT's metadata for a LoRA of `component`, for a file in diffusers' format.
std::map<std::string, std::string> lora_metadata(const std::string& component, int64_t rank, double alpha,
                                                 const std::vector<std::string>& targets);
/// Converts the file `from`, of `component` in diffusers' format, to another format. Error(Model).
void convert_lora(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& component,
                  double alpha, LoraFormat format);

}  // namespace tenon::train
