// Weights of a decoder language model with a low-rank adapter added, as saved by PEFT or by training here.
#pragma once
#include <filesystem>
#include <memory>

#include "tenon/backend/weights.h"
#include "tenon/models/weights.h"

namespace tenon {

/// A model's weights with the adapter in this folder added: W + scale B A, in f32. `shapes`: shapes of the model's
/// weights. Error(Model): files are missing or not an adapter's; an unsupported kind of adapter (DoRA, biases,
/// differing ranks or alphas, other modules saved); tensors of layers that the model does not have, or of other shapes.
std::unique_ptr<WeightSource> with_adapter(std::unique_ptr<WeightSource> base, const WeightShapes& shapes,
                                           const std::filesystem::path& folder);

}  // namespace tenon
