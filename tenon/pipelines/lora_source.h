// A component's weights with LoRAs applied to them.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/weights.h"
#include "tenon/models/lora.h"

namespace tenon {

/// What one LoRA does to one weight.
struct LoraTerm {
  std::shared_ptr<const LoraMatrix> matrix;
  int64_t first_row = 0;  ///< of the matrix
  double weight = 1;
  bool operator==(const LoraTerm&) const = default;
};
using LoraTerms = std::map<std::string, std::map<std::string, std::vector<LoraTerm>>>;  // by component and tensor

/// The weights of `base` with `terms`, as they are when a weight is asked for. What is made of several tensors is made
/// then, and kept until it is done with.
///
/// side_rank 0: W + sum of w (alpha / r) B A, in f32; without a term the bytes of `base`. Else weights stay, and there
/// are A [side_rank, columns] and B [rows, side_rank] of every matrix (nn/low_rank.h): A's of the terms one below
/// the other, w alpha / r in B, zeros behind them.
std::unique_ptr<WeightSource> lora_source(const std::string& component, std::unique_ptr<WeightSource> base,
                                          std::shared_ptr<const LoraTerms> terms, int64_t side_rank);

}  // namespace tenon
