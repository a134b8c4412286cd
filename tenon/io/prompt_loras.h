// LoRAs named in prompts, as AUTOMATIC1111's web UI writes them.
#pragma once
#include <string>
#include <vector>

namespace tenon {

/// <lora:name:weight>
struct PromptLora {
  std::string name;
  double weight = 1;
  bool operator==(const PromptLora&) const = default;
};

/// Takes every <lora:name> and <lora:name:weight> out of the prompt, with a blank that would stand double or at an end
/// without it. A name is a file in a folder or below it. Error(Usage) at `where` for one without its end, an empty
/// name, one that leads out of the folder, or a weight that is no finite number.
std::vector<PromptLora> take_loras(std::string& prompt, const std::string& where);

}  // namespace tenon
