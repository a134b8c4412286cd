// Reproducible random weights for architectures that need no file.
#pragma once
#include <memory>
#include <string_view>

#include "tenon/backend/backend.h"
#include "tenon/backend/weight_source.h"
#include "tenon/models/weights.h"

namespace tenon {

/// Prefix of the names of such models: "random:sd15".
inline constexpr std::string_view kRandomModel = "random:";

/// What can be done with a model that has random weights, and so no tokenizer; for errors.
inline constexpr const char* kUsesOfRandomWeights = "explain, profile, bench, verify, compile and inspect accept them";

/// Tensors of these names and shapes with the values of random_weight, in bf16. Each is computed when asked for and
/// freed once packed.
std::unique_ptr<WeightSource> random_weights(WeightShapes shapes, uint64_t seed);

}  // namespace tenon
