// A component's weights with LoRAs applied to them.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/weights.h"
#include "tenon/models/lora.h"
#include "tenon/models/weights.h"

namespace tenon {

/// The change of one LoRA to one weight.
struct LoraTerm {
  std::shared_ptr<const LoraMatrix> matrix;
  int64_t first_row = 0;  ///< in the matrix
  double weight = 1;
  bool operator==(const LoraTerm&) const = default;
};
using LoraTerms = std::map<std::string, std::map<std::string, std::vector<LoraTerm>>>;  // by component and tensor

/// The weights of `base` with the `terms` in effect when a weight is asked for: W + sum of w (alpha / r) B A, in f32,
/// or the bytes of `base` if there is no term. Sums are computed then, and kept until the store is done with them.
std::unique_ptr<WeightSource> merged_loras(const std::string& component, std::unique_ptr<WeightSource> base,
                                           std::shared_ptr<const LoraTerms> terms);

/// The weights of `base`, and of each of its `matrices` A [rank, columns] and B [rows, rank] (nn/low_rank.h): the A of
/// the `terms` in effect then stacked, w alpha / r multiplied into B, and zeros for unused ranks. Both are kept until
/// the store is done with them; `base` is not asked for the matrix.
std::unique_ptr<WeightSource> side_loras(const std::string& component, std::unique_ptr<WeightSource> base,
                                         std::shared_ptr<const LoraTerms> terms, int64_t rank, WeightShapes matrices);

}  // namespace tenon
