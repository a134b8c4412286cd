// Weights in a device's memory: parameters as they are, and what is computed of them in the layout that a kernel reads.
#pragma once
#include <memory>
#include <vector>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/weights.h"

namespace tenon::cuda {

/// What memory of ours begins at and is long: multiples of this.
inline constexpr int64_t kMemoryAlignment = 256;

/// A value that reads nothing but weights, and the view of a leaf that it is stored through.
struct PackedPiece {
  Expr value, place;
};

/// Parameter `leaf` in the leaf's type.
WeightRequest plain_weight(std::shared_ptr<Device> device, const Expr& leaf);
/// Memory for `leaf`, zero where no piece is stored.
WeightRequest packed_weight(std::shared_ptr<Device> device, const Expr& leaf, const std::vector<PackedPiece>& pieces);

/// The leaves below `value` that are memory.
std::vector<Expr> memory_leaves(const Expr& value);

}  // namespace tenon::cuda
