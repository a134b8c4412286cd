// The LoRAs of a pipeline: read once each, applied to the weights of its networks, taken off again.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tenon/nn/low_rank.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/lora_source.h"

namespace tenon {

/// The largest weight of a LoRA, of either sign: far beyond what is of use, and short of what no type of weights bears.
inline constexpr double kMostLoraWeight = 1e4;
/// Error(Usage) at `where` for a weight beyond it, or one that is no number.
void check_lora_weight(const std::string& where, double weight);

class LoraSet {
 public:
  /// `names` is asked for when it is needed. `options` says how LoRAs are applied; Error(Usage) for a rank that is
  /// none.
  LoraSet(std::function<LoraNames()> names, const PipelineOptions& options);

  /// What networks need beside their layers; nothing where LoRAs are merged.
  nn::SideBranches branches();
  /// Reads the file, also if it was read before. Error(Model) as read_lora; Error(Usage) for one that has no place at
  /// the side even alone, unless its weight is 0.
  LoraReport load(const LoraUse& use);
  /// From now on weights are those with these LoRAs, a weight of 0 being none; what is not read yet is. Gives the
  /// tensors that are others than before, by component, and fills in the files' hashes. Error(Usage) for a file that is
  /// named twice, a weight that is none, and what has no place at the side: ranks that are too large, filters of
  /// several pixels, Kronecker products.
  std::map<std::string, std::set<std::string>> apply(std::vector<LoraUse>& uses);
  /// Forgets files that no later call uses; weights stay as they are.
  void forget() { loaded_.clear(); }

  /// A component's weights with what is applied while they are asked for (lora_source).
  std::unique_ptr<WeightSource> over(const std::string& component, std::unique_ptr<WeightSource> base) const;

 private:
  struct Loaded {
    Lora lora;
    LoraRest rest = LoraRest::Refused;
    std::string sha256;
  };
  const LoraNames& names();
  const Loaded& loaded(const LoraUse& use);
  void add_terms(const Lora& lora, double weight, LoraTerms& to);
  void check_side(const std::string& file, const std::string& tensor, const std::vector<LoraTerm>& terms);

  std::function<LoraNames()> make_names_;
  int64_t side_rank_;  // 0: merged
  std::unique_ptr<LoraNames> names_;
  std::shared_ptr<const std::set<std::string>> matrices_;  // that have side branches
  std::map<std::filesystem::path, Loaded> loaded_;
  std::shared_ptr<LoraTerms> terms_;  // what the sources apply
};

/// Where `folder` has the LoRA `name`: under that name or, if there is no such file, with ".safetensors" behind it,
/// which a name that ends so does not get again.
std::filesystem::path lora_file(const std::filesystem::path& folder, const std::string& name);
/// Moves the prompt's <lora:FILE:WEIGHT> to the request's LoRAs: files that lora_file finds in `folder`. Error(Model)
/// says where a file was looked for; Error(Usage) for one that the request has already.
void take_prompt_loras(ImageRequest& request, const std::filesystem::path& folder);

}  // namespace tenon
