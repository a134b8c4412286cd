#include "tenon/models/decoder_adapter.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/text.h"

namespace tenon {

const std::vector<std::string>& adapter_layers() {
  static const std::vector<std::string> kLayers{"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                "gate_proj", "up_proj", "down_proj"};
  return kLayers;
}

bool is_adapter_weight(std::string_view name) { return !nn::weight_beside(name).empty(); }

WeightShapes adapter_weights(const DecoderConfig& c) {
  const nn::LowRank& a = c.adapter;
  TENON_CHECK(Usage, a.rank >= 1 && a.rank <= kMaxAdapterRank, "lora")
      << "rank " << a.rank << ": expected 1 to " << kMaxAdapterRank;
  TENON_CHECK(Usage, std::isfinite(a.scale) && a.scale != 0, "lora")
      << "alpha / rank is " << a.scale << ": expected a finite number that is not 0";
  const auto rank = static_cast<double>(a.rank);
  TENON_CHECK(Usage, std::abs(a.scale) <= kMaxAdapterAlpha / rank, "lora alpha")
      << a.scale * rank << ": expected -" << kMaxAdapterAlpha << " to " << kMaxAdapterAlpha;
  TENON_CHECK(Usage, !a.targets.empty(), "lora") << "no layers are named";
  for (const std::string& t : a.targets) {
    TENON_CHECK(Usage, std::ranges::find(adapter_layers(), t) != adapter_layers().end(), "lora")
        << "no layer '" << shown(t) << "'; expected one of " << joined(adapter_layers());
    TENON_CHECK(Usage, std::ranges::count(a.targets, t) == 1, "lora") << t << " is named twice";
  }
  WeightShapes out = decoder_weights(c);
  std::erase_if(out, [](const auto& each) { return !is_adapter_weight(each.first); });
  return out;
}

nlohmann::ordered_json adapter_config(const nn::LowRank& adapter, const std::string& base) {
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", as_utf8(base)},
          {"r", adapter.rank},
          {"lora_alpha", adapter.scale * static_cast<double>(adapter.rank)},
          {"lora_dropout", 0.0},
          {"target_modules", adapter.targets},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"use_rslora", false},
          {"use_dora", false},
          {"init_lora_weights", true},
          {"inference_mode", true},
          {"modules_to_save", nullptr}};
}

}  // namespace tenon
