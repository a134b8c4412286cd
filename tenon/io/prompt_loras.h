// LoRAs named in prompts, in the syntax of AUTOMATIC1111's web UI.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// <lora:name:weight>
struct PromptLora {
  std::string name;
  double weight = 1;
  bool operator==(const PromptLora&) const = default;
};

/// Removes every <lora:name> and <lora:name:weight> from the prompt, and a blank that would be left doubled or at an
/// end. A name is a file in the LoRA folder or below it. Error(Usage) at `where` for an unterminated tag, an empty
/// name, a name that leads out of the folder, or a weight that is not a finite number.
std::vector<PromptLora> take_loras(std::string& prompt, const std::string& where);

/// The number that `text` consists of, with at most one sign; otherwise empty.
std::optional<double> lora_weight(std::string_view text);

}  // namespace tenon
