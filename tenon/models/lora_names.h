// Which weights of a model the layers of a LoRA's file change, however the tool that wrote it spells them.
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/models/weights.h"

namespace tenon {

struct StableDiffusionConfig;
struct ZImageConfig;

/// A weight that a layer of the file changes. Where the file has one layer for several weights (fused queries, keys and
/// values), each takes its rows of it.
struct LoraTarget {
  std::string component, tensor;  ///< "unet", "mid_block.attentions.0.proj_in.weight"
  Shape shape;                    ///< of the weight: [rows, columns] or [rows, channels, height, width]
  int64_t first_row = 0;          ///< of the file's rows
  bool fused = false;             ///< one of several
};

/// The layers of a model under all their spellings. Dots and underscores count the same, as kohya's names have
/// underscores only: names are made from the model's side and looked up whole, never taken apart.
class LoraNames {
 public:
  /// Every matrix and filter among a component's weights is a layer, whose name may have one of `prefixes` in front.
  /// Embeddings are none.
  void add(const std::string& component, const WeightShapes& weights, const std::vector<std::string>& prefixes);
  /// Another name for one layer of a component, or for several one below the other. Nothing if one is not there.
  void alias(const std::string& component, const std::string& name, const std::vector<std::string>& layers);

  /// What the file's layer `name` changes; null if the model has no such layer.
  const std::vector<LoraTarget>* find(std::string_view name) const;
  /// Layers of a component, without the prefix.
  std::vector<std::string> layers(const std::string& component) const;
  /// Names of the weights of all components that are matrices, or filters of one pixel.
  std::set<std::string> matrices() const;
  /// The component that a prefix of names such as "unet" stands for; empty if there is none.
  std::string component_of(std::string_view prefix) const;

 private:
  struct Prefix {
    std::string text, component;  // flattened
  };
  std::vector<Prefix> prefixes_;                                                // the longest first
  std::map<std::string, std::map<std::string, std::vector<LoraTarget>>> flat_;  // by component and flattened name
  std::map<std::string, std::vector<std::string>> layers_;
};

/// UNet and text encoder by the names of diffusers, of older diffusers, of single files and of kohya.
LoraNames stable_diffusion_lora_names(const StableDiffusionConfig& c);
/// Transformer by the names of diffusers and of single files (fused attention.qkv), and text encoder, whose weights are
/// `text`.
LoraNames z_image_lora_names(const ZImageConfig& c, const WeightShapes& text);

}  // namespace tenon
