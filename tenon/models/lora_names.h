// Which of a model's weights the layers of a LoRA file change, whichever tool spelled their names.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/models/weights.h"

namespace tenon {

struct StableDiffusionConfig;
struct ZImageConfig;

/// A weight that a layer of the file changes. If one layer of the file covers several weights (fused queries, keys and
/// values), each takes its own rows.
struct LoraTarget {
  std::string component, tensor;  ///< "unet", "mid_block.attentions.0.proj_in.weight"
  Shape shape;                    ///< of the weight: [rows, columns] or [rows, channels, height, width]
  int64_t first_row = 0;          ///< in the file's layer
  bool fused = false;             ///< the file's layer covers several weights
};

/// The layers of a model under all their spellings. Dots and underscores are treated alike, since kohya's names have
/// only underscores: names are generated from the model and looked up whole, never parsed.
class LoraNames {
 public:
  /// Adds every matrix and filter of a component's weights, except embeddings, as a layer. Its name may begin with one
  /// of `prefixes`.
  void add(const std::string& component, const WeightShapes& weights, const std::vector<std::string>& prefixes);
  /// Another name for one layer of a component, or for several stacked layers. Does nothing if one is missing.
  void alias(const std::string& component, const std::string& name, const std::vector<std::string>& layers);

  /// A layer that the component has but never reads. Does nothing if the name is known.
  void add_unread(const std::string& component, const std::string& name);

  /// The weights that the file's layer `name` changes, none if it is never read; null if the model has no such layer.
  const std::vector<LoraTarget>* find(std::string_view name) const;
  /// Layers of a component, without prefix.
  std::vector<std::string> layers(const std::string& component) const;
  /// The weights that are matrices or 1x1 filters, by component.
  std::map<std::string, WeightShapes> matrices() const;
  /// The component that a name prefix such as "unet" stands for; empty if there is none.
  std::string component_of(std::string_view prefix) const;

 private:
  struct Prefix {
    std::string text, component;  // flattened
  };
  std::vector<Prefix> prefixes_;                                                // longest first
  std::map<std::string, std::map<std::string, std::vector<LoraTarget>>> flat_;  // by component and flattened name
  std::map<std::string, std::vector<std::string>> layers_;
};

/// UNet and text encoder by the names of diffusers (current and older), single files and kohya.
LoraNames stable_diffusion_lora_names(const StableDiffusionConfig& c);
/// Transformer by the names of diffusers and of single files (fused attention.qkv), and the text encoder with weights
/// `text`; `whole_text` has also those that are never read.
LoraNames z_image_lora_names(const ZImageConfig& c, const WeightShapes& text, const WeightShapes& whole_text);

}  // namespace tenon
