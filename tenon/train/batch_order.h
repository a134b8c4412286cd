// The order of pictures in a run's batches, each of pictures of one size, determined by seed and batch number.
#pragma once
#include <cstdint>
#include <vector>

#include "tenon/train/picture_set.h"

namespace tenon::train {

class BatchOrder {
 public:
  /// `batch`: number of pictures per batch. Error(Usage) if there are no pictures, or none in a batch.
  BatchOrder(const PictureSet& pictures, int64_t batch, uint64_t seed);

  /// Sizes that occur among the pictures.
  const std::vector<PictureSize>& sizes() const { return sizes_; }
  struct Batch {
    size_t size = 0;               ///< index into sizes()
    std::vector<size_t> pictures;  ///< indices into the set
  };
  /// Batch number `n`. A cycle has as many batches as there are pictures, and of each size as many batches as pictures,
  /// shuffled anew for each cycle; so a cycle has every picture `batch` times. Batches of one size go through its
  /// pictures in rounds, each a new permutation. Error(Usage) for a number below 0.
  Batch at(int64_t n) const;

 private:
  int64_t batch_;
  uint64_t seed_;
  std::vector<PictureSize> sizes_;
  std::vector<std::vector<size_t>> pictures_;  // by size
};

}  // namespace tenon::train
