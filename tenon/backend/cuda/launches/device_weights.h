// Weights in device memory: parameters unchanged, and values computed from them in the layout that a kernel reads.
#pragma once
#include <memory>
#include <vector>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/weights.h"

namespace tenon::cuda {

/// Our allocations are aligned to, and their sizes rounded up to, multiples of this.
inline constexpr int64_t kMemoryAlignment = 256;

/// A value that reads only weights, and the view of a leaf through which it is stored.
struct PackedWrite {
  Expr value, place;
};

/// Parameter `leaf` in the leaf's type.
WeightRequest plain_weight(std::shared_ptr<Device> device, const Expr& leaf);
/// Memory for `leaf`, zero wherever nothing is written.
WeightRequest packed_weight(std::shared_ptr<Device> device, const Expr& leaf, const std::vector<PackedWrite>& writes);

/// A view of `rows` stored permuted (device/products/mma_results.h) that gives them in plain order. The first axis is a
/// multiple of 32.
Expr permuted_rows(const Expr& rows);
/// The leaf that holds permuted weights, and the view of it in plain order.
struct PermutedRows {
  Expr leaf, place;
};
/// Weights of `shape` stored permuted, padded to whole blocks of 32 rows. Whoever stores the same weights so shares
/// their memory.
PermutedRows stored_permuted(Graph& g, const std::string& name, DType t, const Shape& shape);

/// The leaves below `value` that lie in memory.
std::vector<Expr> memory_leaves(const Expr& value);

}  // namespace tenon::cuda
