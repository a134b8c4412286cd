// A LoRA's metadata as PEFT writes it, and the scale that follows from it.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "tenon/models/lora_names.h"

namespace tenon {

/// Scales from `lora_adapter_metadata` (keys such as "unet.lora_alpha") or from adapter_config.json.
class LoraScale {
 public:
  /// `notes`: an object or null. Error(Model) at `where` for invalid values, and for DoRA.
  LoraScale(const nlohmann::json& notes, std::string where);
  /// Scale of layer `name` of `component` with rank r: alpha / r, or alpha / sqrt(r) if the notes say so; 1 without
  /// notes.
  double of(const std::string& component, const std::string& name, int64_t rank, const LoraNames& names) const;

 private:
  const nlohmann::json* find(const std::string& component, const char* key, const LoraNames& names) const;
  nlohmann::json notes_;
  std::string where_;
};

}  // namespace tenon
