// How a model's files ask for its texts to be made: generation_config.json, or a config.json with the same keys.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/pipelines/sampling.h"

namespace tenon {

/// Greedy unless the file says otherwise. Error(Model) for settings of the wrong type or out of range.
Sampling read_sampling(const nlohmann::json& config, const std::string& where);

/// Settings that would change transformers' texts and that nothing here follows; those with neutral values are left
/// out.
std::vector<std::string> unfollowed_settings(const nlohmann::json& config);

}  // namespace tenon
