// The tensors of a checkpoint's component as a network's weights.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "tenon/backend/weights.h"
#include "tenon/io/component.h"

namespace tenon {

/// Reads tensors in place. Those in quantised blocks or with scales are converted to f32 one at a time and freed when
/// the store is done with them. Error(Model) names the component for a tensor that is missing or has an unreadable
/// type. The component must outlive the result.
std::unique_ptr<WeightSource> component_weights(const Component& component);

/// The same for plain tensors, which must outlive the result; Error(Model) names a missing one.
std::unique_ptr<WeightSource> tensor_weights(const std::map<std::string, TensorView>& tensors);

/// The same for the tensors of a GGUF file, which must outlive the result; Error(Model) names `where`.
std::unique_ptr<WeightSource> gguf_weights(const std::map<std::string, GgufSlice>& tensors, const std::string& where);

}  // namespace tenon
