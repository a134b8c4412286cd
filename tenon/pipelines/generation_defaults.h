// What a folder says of its own use: sizes and steps that fit its model, and how far its training reached.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/samplers/settings.h"

namespace tenon {

/// Most steps that a schedule is asked for.
inline constexpr int kMaxSteps = 1000;

/// What requests of a model get that do not say otherwise.
struct GenerationDefaults {
  int64_t width = 512, height = 512;
  int steps = 20;
  double cfg_scale = 7.5;
  std::string sampler;  ///< empty: the scheduler_config's own
};

/// Takes over what key "_tenon_defaults" of a model_index.json says; nothing without it. `file` is for messages; sizes
/// must be multiples of `unit`, the sampler one that runs with `scheduler`. Error(Model) names the value at fault.
void read_own_defaults(GenerationDefaults& defaults, const nlohmann::json& model_index, const std::string& file,
                       int64_t unit, const Settings& scheduler);

/// ImageGenerator::warnings of a model that was trained on the words of `known` and on pictures of one size only;
/// nothing if `known` is empty.
std::vector<std::string> beyond_training(const std::string& model, const KnownWords& known,
                                         const GenerationDefaults& defaults, const ImageRequest& request,
                                         const std::string& word_list);

}  // namespace tenon
