#include "tenon/pipelines/adapted_weights.h"

#include <cmath>
#include <mutex>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/json.h"
#include "tenon/io/safetensors.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/decoder_adapter.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {
using nlohmann::json;

struct AdapterConfig {
  int64_t rank = 0;
  double scale = 1;
};

AdapterConfig read_adapter_config(const fs::path& file) {
  const json config = read_json(file);
  TENON_CHECK(Model, config.is_object(), file.string()) << "is " << shown_json(config) << ", expected an object";
  ConfigReader r(config, file.string());
  r.expect("peft_type", {"LORA"});
  for (const char* key : {"use_dora", "fan_in_fan_out", "lora_bias"}) r.expect(key, {false});
  r.expect("bias", {"none"});
  for (const char* key : {"modules_to_save", "rank_pattern", "alpha_pattern", "layer_replication"}) {
    const json value = config.value(key, json());
    TENON_CHECK(Model, value.is_null() || value.empty(), file.string())
        << key << " is " << shown_json(value) << ", which is not read";
  }
  AdapterConfig out;
  out.rank = r.integer("r", 0, 1, kMostAdapterRank);
  const double alpha = r.number("lora_alpha", 8, -1e9, 1e9);
  const auto rank = static_cast<double>(out.rank);
  out.scale = alpha / (r.flag("use_rslora", false) ? std::sqrt(rank) : rank);
  return out;
}

// The two factors of a layer.
struct Factors {
  TensorView down, up;
};

class AdaptedWeights : public WeightSource {
 public:
  AdaptedWeights(std::unique_ptr<WeightSource> base, const WeightShapes& shapes, const fs::path& folder)
      : base_(std::move(base)),
        config_(read_adapter_config(folder / kAdapterConfig)),
        file_(SafetensorsFile::open(folder / kAdapterWeights)) {
    for (const auto& [name, tensor] : file_.tensors()) take(name, tensor, shapes);
    for (const auto& [weight, f] : factors_)
      TENON_CHECK(Model, f.down.data && f.up.data, file_.name())
          << "has one factor only of '" << shown(weight) << "', expected lora_A and lora_B";
    TENON_CHECK(Model, !factors_.empty(), file_.name()) << "holds no tensors of a low-rank adapter";
  }

  HostView find(const std::string& name) const override {
    const auto it = factors_.find(name);
    if (it == factors_.end()) return base_->find(name);
    const std::scoped_lock lock(mutex_);
    std::vector<float>& sum = made_[name];
    const HostView view = base_->find(name);
    if (sum.empty()) sum = added(view, it->second);
    return {DType::F32, view.shape, sum.data()};
  }
  void done(const std::string& name) const override {
    base_->done(name);
    const std::scoped_lock lock(mutex_);
    made_.erase(name);
  }

 private:
  void take(const std::string& name, const TensorView& tensor, const WeightShapes& shapes) {
    const bool down = name.ends_with(kAdapterDown),
               known = name.starts_with(kAdapterPrefix) && (down || name.ends_with(kAdapterUp));
    const size_t begin = std::string_view(kAdapterPrefix).size();
    const std::string weight = known ? name.substr(begin, name.size() - begin - kAdapterDown.size()) + ".weight" : "";
    const auto of_model = shapes.find(weight);
    TENON_CHECK(Model, of_model != shapes.end() && of_model->second.rank() == 2, file_.name())
        << "'" << shown(name) << "' belongs to no layer of this model";
    const Shape want = down ? Shape{config_.rank, of_model->second[1]} : Shape{of_model->second[0], config_.rank};
    TENON_CHECK(Model, tensor.shape == want && is_float(tensor.dtype), file_.name())
        << "'" << shown(name) << "' is " << name_of(tensor.dtype) << tensor.shape.str() << ", expected floats "
        << want.str();
    (down ? factors_[weight].down : factors_[weight].up) = tensor;
  }

  // Rows of W with those of B A added, each a sum over the rank.
  std::vector<float> added(const HostView& view, const Factors& f) const {
    const int64_t outputs = view.shape[0], inputs = view.shape[1];
    std::vector<float> out(static_cast<size_t>(view.shape.numel())), down(static_cast<size_t>(config_.rank * inputs));
    for (size_t i = 0; i < down.size(); ++i)
      down[i] = static_cast<float>(load_element(f.down.dtype, f.down.data, static_cast<int64_t>(i)));
    for (int64_t row = 0; row < outputs; ++row) {
      float* const to = out.data() + row * inputs;
      for (int64_t i = 0; i < inputs; ++i)
        to[i] = static_cast<float>(load_element(view.dtype, view.data, row * inputs + i));
      for (int64_t k = 0; k < config_.rank; ++k) {
        const auto by = static_cast<float>(config_.scale * load_element(f.up.dtype, f.up.data, row * config_.rank + k));
        const float* const from = down.data() + k * inputs;
        for (int64_t i = 0; i < inputs; ++i) to[i] += by * from[i];
      }
    }
    return out;
  }

  std::unique_ptr<WeightSource> base_;
  AdapterConfig config_;
  SafetensorsFile file_;
  std::map<std::string, Factors> factors_;  // by the weight that they add to
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<float>> made_;
};

}  // namespace

std::unique_ptr<WeightSource> with_adapter(std::unique_ptr<WeightSource> base, const WeightShapes& shapes,
                                           const fs::path& folder) {
  return std::make_unique<AdaptedWeights>(std::move(base), shapes, folder);
}

}  // namespace tenon
