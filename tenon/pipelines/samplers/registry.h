// Self-registration of samplers: a sampler's file holds one RegisterSampler at namespace scope.
#pragma once
#include "tenon/pipelines/samplers/sampler.h"

namespace tenon {

/// When a sampler takes Karras noise levels.
enum class KarrasLevels : uint8_t {
  Never,
  IfAsked,      ///< its class of diffusers has no use_karras_sigmas: only SamplerOptions turn them on
  IfConfigured  ///< where SamplerOptions say nothing, use_karras_sigmas of the config decides
};

struct SamplerInfo {
  std::string name;                        ///< main name, as sampler_names() prints it
  std::string a1111_name;                  ///< as AUTOMATIC1111's web UI calls it, in what pictures say of themselves
  std::vector<std::string> aliases;        ///< other accepted names
  std::string diffusers_class;             ///< `_class_name` that selects it
  std::optional<double> default_eta = {};  ///< share of fresh noise; unset: the sampler has no eta
  KarrasLevels karras = KarrasLevels::Never;
  bool flow_matching = false;  ///< `make` knows configs of flow matching too
  /// Gets the options of choose_sampler: set if the sampler has them.
  std::function<std::unique_ptr<Sampler>(const Settings&, const SamplerOptions&)> make;
};

struct RegisterSampler {
  explicit RegisterSampler(SamplerInfo info);
};

}  // namespace tenon
