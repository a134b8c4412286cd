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
/// Prefix of an adapter's tensor names in its file.
inline constexpr const char* kAdapterPrefix = "base_model.model.";

inline constexpr int64_t kMaxAdapterRank = 1 << 16;
inline constexpr double kMaxAdapterAlpha = 1e9;  ///< absolute

/// Layers that may have an adapter: "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj".
const std::vector<std::string>& adapter_layers();
/// Whether this is the name of an adapter's weight.
bool is_adapter_weight(std::string_view name);
/// The weights that config.adapter adds to the network. Error(Usage) for a rank below 1, a scale that is 0, not finite
/// or of an alpha beyond kMaxAdapterAlpha, no target, an unknown target, or a target named twice.
WeightShapes adapter_weights(const DecoderConfig& c);
/// The adapter_config.json of an adapter with scale alpha / rank; `base`: the model that it was trained on.
nlohmann::ordered_json adapter_config(const nn::LowRank& adapter, const std::string& base);

}  // namespace tenon
