// A component's weights with LoRAs applied to them.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/weights.h"
#include "tenon/models/lora.h"

namespace tenon {

/// The change of one LoRA to one weight.
struct LoraTerm {
  std::shared_ptr<const LoraMatrix> matrix;
  int64_t first_row = 0;  ///< in the matrix
  double weight = 1;
  bool operator==(const LoraTerm&) const = default;
};
using LoraTerms = std::map<std::string, std::map<std::string, std::vector<LoraTerm>>>;  // by component and tensor

/// The weights of `base` with the `terms` in effect when a weight is asked for. Computed tensors are computed then, and
/// kept until the store is done with them.
///
/// side_rank 0: W + sum of w (alpha / r) B A, in f32; the bytes of `base` if there is no term. Otherwise weights are
/// unchanged, and every matrix gets A [side_rank, columns] and B [rows, side_rank] (nn/low_rank.h): the terms' A
/// stacked, w alpha / r multiplied into B, and zeros for unused ranks.
std::unique_ptr<WeightSource> lora_source(const std::string& component, std::unique_ptr<WeightSource> base,
                                          std::shared_ptr<const LoraTerms> terms, int64_t side_rank);

}  // namespace tenon
