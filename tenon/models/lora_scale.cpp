#include "tenon/models/lora_scale.h"

#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/text.h"

namespace tenon {

constexpr const char* kPatternSigns = "^$*+?()[]{}|\\";  // besides dots, which names have too
constexpr char kAnchor = '^';                            // in front of a name: the whole name, as diffusers writes

namespace {
// Whether a key of alpha_pattern is the layer's name or the end of it.
bool fits(std::string_view key, const std::string& name, const std::string& component, const LoraNames& names) {
  const bool whole = key.starts_with(kAnchor);
  key.remove_prefix(whole ? 1 : 0);
  if (name == key) return true;
  if (!name.ends_with("." + std::string(key))) return false;
  const std::string before = name.substr(0, name.size() - key.size() - 1);
  return !whole || before == "base_model.model" || names.component_of(before) == component;
}
}  // namespace

LoraScale::LoraScale(const nlohmann::json& notes, std::string where) : notes_(notes), where_(std::move(where)) {
  if (notes_.is_null()) notes_ = nlohmann::json::object();
  TENON_CHECK(Model, notes_.is_object(), where_) << "PEFT metadata: expected an object, found " << notes_.type_name();
  for (const auto& [key, value] : notes_.items()) {
    TENON_CHECK(Model, !(key.ends_with("use_dora") && value == true), where_)
        << "is a DoRA (use_dora), which is not supported";
    const bool plain =
        !value.is_string() || value == "gaussian" || value == "eva" || value == "orthogonal" || value == "mica";
    TENON_CHECK(Model, plain || !key.ends_with("init_lora_weights"), where_)
        << "PEFT metadata: " << shown(key) << " is " << shown(value.dump())
        << ": it also changed the model's weights, which is not supported";
    if (!key.ends_with("alpha_pattern") || !value.is_object()) continue;
    for (const auto& [layer, alpha] : value.items())
      TENON_CHECK(Model, layer.find_first_of(kPatternSigns, layer.starts_with(kAnchor) ? 1 : 0) == layer.npos, where_)
          << "PEFT metadata: " << shown(key) << ": '" << shown(layer)
          << "' is a regular expression, expected a layer's name";
  }
}

// In a file for several networks, keys begin with the network's name.
const nlohmann::json* LoraScale::find(const std::string& component, const char* key, const LoraNames& names) const {
  for (const auto& [name, value] : notes_.items()) {
    const size_t dot = name.find('.');
    if (name == key ||
        (dot != name.npos && name.substr(dot + 1) == key && names.component_of(name.substr(0, dot)) == component))
      return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

double LoraScale::of(const std::string& component, const std::string& name, int64_t rank,
                     const LoraNames& names) const {
  const nlohmann::json* alpha = find(component, "lora_alpha", names);
  // Values per layer: the first key that fits counts; PEFT writes them sorted, as here.
  if (const nlohmann::json* one = find(component, "alpha_pattern", names); one && one->is_object())
    for (const auto& [layer, value] : one->items())
      if (fits(layer, name, component, names)) {
        alpha = &value;
        break;
      }
  if (!alpha) return 1;
  TENON_CHECK(Model, alpha->is_number() && std::isfinite(alpha->get<double>()), where_)
      << "PEFT metadata: lora_alpha of '" << shown(name) << "': expected a number, found " << shown(alpha->dump());
  const nlohmann::json* root = find(component, "use_rslora", names);
  const auto r = static_cast<double>(rank);
  return alpha->get<double>() / (root && *root == true ? std::sqrt(r) : r);
}

}  // namespace tenon
