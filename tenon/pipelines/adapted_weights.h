// Weights of a decoder language model with a low-rank adapter added, which PEFT or training saved.
#pragma once
#include <filesystem>
#include <memory>

#include "tenon/backend/weights.h"
#include "tenon/models/weights.h"

namespace tenon {

/// A model's weights with an adapter of this folder added: W + scale B A, in f32. `shapes`: of the model's weights.
/// Error(Model): files that are missing or no adapter's; one of a kind that is not read (DoRA, biases, ranks or alphas
/// that differ, other modules saved); tensors of layers that the model has not, or of other shapes.
std::unique_ptr<WeightSource> with_adapter(std::unique_ptr<WeightSource> base, const WeightShapes& shapes,
                                           const std::filesystem::path& folder);

}  // namespace tenon
