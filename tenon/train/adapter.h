// Training of low-rank adapters: initial weights.
#pragma once
#include <memory>

#include "tenon/backend/weights.h"
#include "tenon/models/weights.h"

namespace tenon::train {

/// A model's weights plus those of a new adapter, `leaves` (adapter_weights). As PEFT's default, each A is uniform in
/// +-1 / sqrt(inputs), drawn from the seed and the index of its name; each B is zero, so that initially the network
/// equals the model.
std::shared_ptr<const WeightSource> with_new_adapter(std::unique_ptr<WeightSource> base, const WeightShapes& leaves,
                                                     uint64_t seed);

}  // namespace tenon::train
