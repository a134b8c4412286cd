// A model folder's own defaults: sizes and steps that suit it, and the limits of its training.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/io/prompt_weights.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/samplers/settings.h"

namespace tenon {

/// Most steps of a schedule.
inline constexpr int kMaxSteps = 1000;

/// Defaults for requests to a model.
struct GenerationDefaults {
  int64_t width = 512, height = 512;
  int steps = 20;
  double cfg_scale = 7.5;
  std::string sampler;  ///< empty: the scheduler_config's own
};

/// Reads the key "_tenon_defaults" of a model_index.json, if there is one, into `defaults`. `file` is for messages;
/// sizes must be multiples of `unit`, and the sampler must work with `scheduler`. Error(Model) names the invalid value.
void read_own_defaults(GenerationDefaults& defaults, const nlohmann::json& model_index, const std::string& file,
                       int64_t unit, const Settings& scheduler);

/// Fills in a request's steps and sampler, with its options, from the model's defaults and its scheduler's config (for
/// that sampler). Error(Usage) for what the request asks for; Error(Model) for a config that cannot be used, and for
/// default steps that it has no room for. `model` is for messages.
void complete_sampling(ImageRequest& request, const GenerationDefaults& defaults, const Settings& scheduler,
                       const std::string& model);

/// "prompt", or of several "prompt 2 ('a red circle')": one of a request's prompts in messages.
std::string prompt_label(std::span<const std::string> prompts, size_t i);

/// ImageGenerator::warnings for a model that was trained only on the words in `known` and on pictures of one size; none
/// if `known` is empty. `parts_of` splits a prompt as the model does.
std::vector<std::string> beyond_training(const std::string& model, const KnownWords& known,
                                         const GenerationDefaults& defaults, const ImageRequest& request,
                                         const std::string& word_list,
                                         const std::function<std::vector<WeightedText>(std::string_view)>& parts_of);

}  // namespace tenon
