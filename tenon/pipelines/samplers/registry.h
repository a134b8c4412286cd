// Self-registration of samplers: each sampler's file has one RegisterSampler at namespace scope.
#pragma once
#include "tenon/pipelines/samplers/sampler.h"

namespace tenon {

/// When a sampler uses Karras noise levels.
enum class KarrasLevels : uint8_t {
  Never,
  IfAsked,      ///< diffusers' class has no use_karras_sigmas: only SamplerOptions turn them on
  IfConfigured  ///< unless SamplerOptions say otherwise, the config's use_karras_sigmas decides
};

struct SamplerInfo {
  std::string name;                        ///< main name, as sampler_names() prints it
  std::string a1111_name;                  ///< AUTOMATIC1111's name for it, written into pictures
  std::vector<std::string> aliases;        ///< other accepted names
  std::string diffusers_class;             ///< `_class_name` that selects it
  std::optional<double> default_eta = {};  ///< share of fresh noise; unset: the sampler has no eta
  KarrasLevels karras = KarrasLevels::Never;
  bool flow_matching = false;  ///< `make` also supports flow-matching configs
  /// Gets the options of choose_sampler, with a value for each option that the sampler has.
  std::function<std::unique_ptr<Sampler>(const Settings&, const SamplerOptions&)> make;
};

struct RegisterSampler {
  explicit RegisterSampler(SamplerInfo info);
};

}  // namespace tenon
