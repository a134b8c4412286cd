// Reproducible random weights for architectures without a file.
#pragma once
#include <memory>
#include <string_view>

#include "tenon/backend/backend.h"
#include "tenon/models/weights.h"

namespace tenon {

/// How the name of a model without a file begins: "random:sd15".
inline constexpr std::string_view kRandomModel = "random:";

/// Tensors of these names and shapes as random_weight has them, in bf16, each made when it is asked for and dropped
/// when it has been packed.
std::unique_ptr<WeightSource> random_weights(WeightShapes shapes, uint64_t seed);

}  // namespace tenon
