// Low-rank adapters of decoder language models, as PEFT saves them: a folder with adapter_config.json and
// adapter_model.safetensors, whose tensors are "base_model.model.<layer>.lora_A.weight" [rank, inputs] and
// ".lora_B.weight" [outputs, rank].
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/models/decoder.h"

namespace tenon {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";
/// What the names of an adapter's tensors begin with in its file.
inline constexpr const char* kAdapterPrefix = "base_model.model.";

inline constexpr int64_t kMostAdapterRank = 1 << 16;

/// Layers that may have an adapter: "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj".
const std::vector<std::string>& adapter_layers();
/// Whether a weight is an adapter's, by its name.
bool is_adapter_weight(std::string_view name);
/// The weights that config.adapter adds to the network. Error(Usage) for a rank below 1, a scale that is not finite, no
/// target, and one that is no layer or is named twice.
WeightShapes adapter_weights(const DecoderConfig& c);
/// adapter_config.json of an adapter whose scale is alpha / rank; `base`: what it was trained on.
nlohmann::ordered_json adapter_config(const nn::LowRank& adapter, const std::string& base);

}  // namespace tenon
