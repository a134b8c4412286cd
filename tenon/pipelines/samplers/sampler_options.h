// What a request may ask of its sampler.
#pragma once
#include <optional>

namespace tenon {

/// Options that scheduler_config.json does not contain.
struct SamplerOptions {
  std::optional<double> eta;              ///< share of fresh noise, 0..1: DDIM (default 0), Euler ancestral (default 1)
  std::optional<bool> karras;             ///< Karras noise levels; unset: use_karras_sigmas of the config
  std::optional<double> flow_shift = {};  ///< of the noise levels in flow matching, above 0; unset: the config's
};

}  // namespace tenon
