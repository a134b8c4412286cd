// The tensors of a checkpoint's component as weights of a network.
#pragma once
#include <memory>

#include "tenon/backend/weights.h"
#include "tenon/io/component.h"

namespace tenon {

/// Reads them where they lie; Error(Model) names the component for a tensor that is not there or of a type that cannot
/// be read. The component must outlive it.
std::unique_ptr<WeightSource> component_weights(const Component& component);

}  // namespace tenon
