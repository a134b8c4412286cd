// A vision transformer ready to use: a checkpoint on disk in any of three layouts, or a named architecture with random
// weights.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tenon/backend/backend.h"
#include "tenon/backend/weight_source.h"
#include "tenon/io/safetensors.h"
#include "tenon/models/vit.h"
#include "tenon/pipelines/image_embedder.h"
#include "tenon/pipelines/networks.h"

namespace tenon {

class ImageEncoder {
 public:
  /// `spec`: "random:NAME" or a path, as -m takes it. A folder holds model.safetensors (or its index, or one other
  /// .safetensors file), optionally config.json and preprocessor_config.json. Error(Model) for anything else, and for
  /// weights that are incomplete or not of a vision transformer.
  static std::shared_ptr<const ImageEncoder> open(const std::string& spec, uint64_t random_seed = 0);
  /// True if the path holds weights of a vision transformer.
  static bool reads(const std::filesystem::path& path);

  const std::string& name() const { return name_; }
  const VitConfig& config() const { return config_; }
  /// Preprocessing as `kind` ("timm", "hf") does it: from the files' own settings if they are of that kind, else with
  /// its usual ones. "" means the checkpoint's kind: timm for timm's weights, hf for the others. Error(Usage) for other
  /// words.
  ImagePreprocessing preprocessing(const std::string& kind = "") const;
  /// Weights by timm's names.
  std::unique_ptr<WeightSource> weights() const;
  /// Names and shapes of the weights that the network reads.
  WeightShapes shapes() const { return vit_weights(config_); }
  /// Null for random weights.
  const WeightSet* checkpoint() const { return stored_ ? &*stored_ : nullptr; }

 private:
  std::string name_;
  VitConfig config_;
  std::optional<WeightSet> stored_;
  std::map<std::string, TensorView> tensors_;  // by timm's names
  std::filesystem::path folder_;               // the folder of the checkpoint's files
  nlohmann::json settings_, preprocessor_;     // config.json, preprocessor_config.json
  uint64_t random_seed_ = 0;
};

/// Error(Usage), calling the side `what`, if it is not a multiple of the patch; names the nearest multiple.
void check_side(const VitConfig& c, const std::string& what, int64_t side);

/// The encoder's only network, under its plan's name.
std::vector<NamedNetwork> networks_of(const ImageEncoder& encoder);

/// Input "pixels" f32 [batch, height, width, 3]; result "tokens" as vit(). Error(Usage) as check_side.
Plan plan_image_encoder(const VitConfig& c, int64_t batch, int64_t height, int64_t width,
                        const NetworkOptions& options);

}  // namespace tenon
