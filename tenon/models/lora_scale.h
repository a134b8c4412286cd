// What PEFT notes of a LoRA beside its tensors: alpha, and how the scale follows from it.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "tenon/models/lora_names.h"

namespace tenon {

/// Scales by the notes of `lora_adapter_metadata` (names such as "unet.lora_alpha") or of adapter_config.json.
class LoraScale {
 public:
  /// `notes`: an object or null. Error(Model) at `where` for values that are none, and for DoRA.
  LoraScale(const nlohmann::json& notes, std::string where);
  /// Of the layer `name` of `component` with rank r: alpha / r, alpha / sqrt(r) where the notes say so; 1 without
  /// notes.
  double of(const std::string& component, const std::string& name, int64_t rank, const LoraNames& names) const;

 private:
  const nlohmann::json* find(const std::string& component, const char* key, const LoraNames& names) const;
  nlohmann::json notes_;
  std::string where_;
};

}  // namespace tenon
