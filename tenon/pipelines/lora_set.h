// The LoRAs of a pipeline: each is read once, applied to the weights of its networks, and removed again.
#pragma once
#include <array>
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

/// Largest absolute weight of a LoRA: far beyond useful values, yet small enough for every weight type.
inline constexpr double kMaxLoraWeight = 1e4;
/// Error(Usage) at `where` for a weight beyond it, or one that is not a number.
void check_lora_weight(const std::string& where, double weight);

class LoraSet {
 public:
  /// `names` is called when it is needed. `options` says how LoRAs are applied; Error(Usage) for an invalid rank.
  LoraSet(std::function<LoraNames()> names, const PipelineOptions& options);

  /// Side branches that networks need; none if LoRAs are merged.
  nn::SideBranches branches();
  /// Reads the file, even if it was read before. Error(Model) as read_lora; Error(Usage) for one that does not fit a
  /// side branch even on its own, unless its weight is 0.
  LoraReport load(const LoraUse& use);
  /// From now on weights include exactly these LoRAs (weight 0 means none), reading those not read yet. Returns the
  /// tensors that changed, by component, and fills in the files' hashes. Error(Usage) for a file named twice, an
  /// invalid weight, and what does not fit a side branch: ranks that are too large, filters larger than 1x1, Kronecker
  /// products.
  std::map<std::string, std::set<std::string>> apply(std::vector<LoraUse>& uses);
  /// Drops the files read so far; weights stay as they are.
  void forget() { loaded_.clear(); }

  LoraApply apply_as() const { return side_rank_ ? LoraApply::Side : LoraApply::Merge; }
  /// A component's weights with the LoRAs that are applied at the time a weight is asked for (lora_source.h).
  std::unique_ptr<WeightSource> over(const std::string& component, std::unique_ptr<WeightSource> base);

 private:
  struct Loaded {
    Lora lora;
    LoraRest rest = LoraRest::Refused;
    std::string sha256, data_sha256;
  };
  const LoraNames& names();
  const Loaded& loaded(const LoraUse& use);
  void add_terms(const Lora& lora, double weight, LoraTerms& to);
  void check_side(const std::string& file, const std::string& tensor, const std::vector<LoraTerm>& terms);

  std::function<LoraNames()> make_names_;
  int64_t side_rank_;  // 0: merged
  std::unique_ptr<LoraNames> names_;
  std::shared_ptr<const std::set<std::string>> matrices_;  // those that have side branches
  std::map<std::filesystem::path, Loaded> loaded_;
  std::shared_ptr<LoraTerms> terms_;  // read by the sources
};

/// Files that a folder with one LoRA holds it in: diffusers' and train lora's, and PEFT's.
inline constexpr std::array<const char*, 2> kLoraFiles{"pytorch_lora_weights.safetensors", "adapter_model.safetensors"};
/// The file of LoRA `name` in `folder`: that name or, if there is no such file, with ".safetensors" appended unless it
/// already ends so; if that is none either and the name is a folder, the first of kLoraFiles in it.
std::filesystem::path lora_file(const std::filesystem::path& folder, const std::string& name);
/// Error(Model) if `place` is a folder, which then holds no LoRA: for names of which lora_file finds no file.
void check_is_no_folder(const std::filesystem::path& place);
/// A LoRA's name in a picture's settings: its file's without the ending or, of one of kLoraFiles, its folder's.
std::string lora_name(const std::filesystem::path& file);
/// Moves the prompt's <lora:FILE:WEIGHT> tags to the request's LoRAs, as files that lora_file finds in `folder`.
/// Error(Model) says where a file was looked for; Error(Usage) for one that the request already has.
void take_prompt_loras(ImageRequest& request, const std::filesystem::path& folder);

}  // namespace tenon
