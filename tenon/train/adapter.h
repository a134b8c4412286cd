// Training of low-rank adapters: what a network reads, with an adapter's leaves at their beginning.
#pragma once
#include <memory>

#include "tenon/backend/weights.h"
#include "tenon/models/weights.h"

namespace tenon::train {

/// A model's weights and those of an adapter, `leaves` (adapter_weights): each A uniform in +-1 / sqrt(inputs), drawn
/// from the seed and its name's place, as PEFT's default; each B zero, so that the network is the model's at first.
std::shared_ptr<const WeightSource> with_new_adapter(std::unique_ptr<WeightSource> base, const WeightShapes& leaves,
                                                     uint64_t seed);

}  // namespace tenon::train
