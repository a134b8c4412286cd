// The tensors of a checkpoint's component as weights of a network.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "tenon/backend/weights.h"
#include "tenon/io/component.h"

namespace tenon {

/// Reads them where they lie; those in quantised blocks or with scales become f32 numbers one by one, which go when the
/// store is done with them. Error(Model) names the component for a tensor that is not there or of a type that cannot be
/// read. The component must outlive it.
std::unique_ptr<WeightSource> component_weights(const Component& component);

/// The same of a GGUF file's tensors alone, which must outlive it; Error(Model) names `where`.
std::unique_ptr<WeightSource> gguf_weights(const std::map<std::string, GgufSlice>& tensors, const std::string& where);

}  // namespace tenon
