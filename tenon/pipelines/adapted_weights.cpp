#include "tenon/pipelines/adapted_weights.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/json.h"
#include "tenon/io/safetensors.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/decoder_adapter.h"
#include "tenon/models/lora.h"
#include "tenon/pipelines/lora_source.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {
using nlohmann::json;

constexpr const char* kNetwork = "network";  // a language model is a single component

struct AdapterConfig {
  int64_t rank = 0;
  double scale = 1;
  json targets;

  // Whether PEFT has a branch beside the layer; of others it drops what a file has. A regular expression or
  // "all-linear" in place of the list is not looked at.
  bool targets_layer(const std::string& layer) const {
    return !targets.is_array() || std::ranges::any_of(targets, [&](const json& t) {
      return t.is_string() && ("." + layer).ends_with("." + t.get<std::string>());
    });
  }
};

AdapterConfig read_adapter_config(const fs::path& file) {
  const json config = read_json(file);
  TENON_CHECK(Model, config.is_object(), file.string()) << "is " << shown_json(config) << ", expected an object";
  ConfigReader r(config, file.string());
  r.expect("peft_type", {"LORA"});
  for (const char* key : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"}) r.expect(key, {false});
  // The others (pissa, olora, corda, loftq, lora_ga) also change the weights that the product is added to.
  if (r.has("init_lora_weights")) r.expect("init_lora_weights", {true, false, "gaussian", "eva", "orthogonal", "mica"});
  r.expect("bias", {"none"});
  for (const char* key : {"modules_to_save", "rank_pattern", "alpha_pattern", "layer_replication",
                          "alora_invocation_tokens", "use_bdlora"}) {
    const json value = config.value(key, json());
    TENON_CHECK(Model, value.is_null() || value.empty(), file.string())
        << key << " is " << shown_json(value) << ", which is not supported";
  }
  AdapterConfig out;
  out.targets = config.value("target_modules", json());
  out.rank = r.integer("r", 0, 1, kMaxAdapterRank);
  const double alpha = r.number("lora_alpha", 8, -kMaxAdapterAlpha, kMaxAdapterAlpha);
  const auto rank = static_cast<double>(out.rank);
  out.scale = alpha / (r.flag("use_rslora", false) ? std::sqrt(rank) : rank);
  return out;
}

std::vector<float> numbers(const TensorView& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.shape.numel()));
  load_floats(tensor.dtype, tensor.data, out);
  return out;
}

// Reads the layers of an adapter's file, by the weights that they add to, and checks every factor.
std::map<std::string, LoraMatrix> read_adapter(const fs::path& folder, const WeightShapes& shapes) {
  const AdapterConfig config = read_adapter_config(folder / kAdapterConfig);
  const SafetensorsFile file = SafetensorsFile::open(folder / kAdapterWeights);
  std::map<std::string, LoraMatrix> out;
  for (const auto& [name, tensor] : file.tensors()) {
    const bool down = name.ends_with(nn::kSideDown);
    const std::string_view begin = kAdapterPrefix;
    const std::string weight = name.starts_with(begin) ? nn::weight_beside(name.substr(begin.size())) : "";
    const auto of_model = shapes.find(weight);
    TENON_CHECK(Model, of_model != shapes.end() && of_model->second.rank() == 2, file.name())
        << "'" << shown(name) << "' matches no layer of this model";
    TENON_CHECK(Model, config.targets_layer(weight.substr(0, weight.rfind('.'))), file.name())
        << "'" << shown(name) << "' is beside a layer that is not in target_modules of " << kAdapterConfig << ", "
        << shown_json(config.targets);
    const int64_t rows = of_model->second[0], columns = of_model->second[1];
    const Shape want = down ? Shape{config.rank, columns} : Shape{rows, config.rank};
    TENON_CHECK(Model, tensor.shape == want && is_float(tensor.dtype), file.name())
        << "'" << shown(name) << "' is " << name_of(tensor.dtype) << tensor.shape.str() << ", expected floats "
        << want.str();
    LoraMatrix& matrix = out[weight];
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.scale = config.scale;
    matrix.rank = config.rank;
    std::vector<float>& factor = down ? matrix.down : matrix.up;
    factor = numbers(tensor);
    const auto bad = std::ranges::find_if_not(factor, [](float v) { return std::isfinite(v); });
    TENON_CHECK(Model, bad == factor.end(), file.name())
        << "'" << shown(name) << "' holds " << *bad << " at element " << bad - factor.begin();
  }
  for (const auto& [weight, m] : out)
    TENON_CHECK(Model, !m.down.empty() && !m.up.empty(), file.name())
        << "has only one factor of '" << shown(weight) << "', expected lora_A and lora_B";
  TENON_CHECK(Model, !out.empty(), file.name()) << "holds no tensors of a low-rank adapter";
  return out;
}

}  // namespace

std::unique_ptr<WeightSource> with_adapter(std::unique_ptr<WeightSource> base, const WeightShapes& shapes,
                                           const fs::path& folder) {
  LoraTerms terms;
  for (auto& [weight, matrix] : read_adapter(folder, shapes))
    terms[kNetwork][weight] = {{.matrix = std::make_shared<const LoraMatrix>(std::move(matrix))}};
  return merged_loras(kNetwork, std::move(base), std::make_shared<const LoraTerms>(std::move(terms)));
}

}  // namespace tenon
