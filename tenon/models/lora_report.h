// What a model took of a LoRA's file.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tenon {

/// What was used of a file.
struct LoraReport {
  std::map<std::string, int64_t> layers;  ///< number of changed layers, by component
  int64_t rank = 0;                       ///< the largest
  std::vector<std::string> unmatched;     ///< names of tensors that were not used
  std::vector<std::string> redundant;     ///< those of fused layers that it also has unfused, and of layers never read
  /// "128 layers of unet, 72 of text_encoder, rank 16".
  std::string str() const;
};

}  // namespace tenon
