// Which pictures the batches of a run have: all of a batch of one size, in an order that seed and number determine.
#pragma once
#include <cstdint>
#include <vector>

#include "tenon/train/picture_set.h"

namespace tenon::train {

class BatchOrder {
 public:
  /// `batch`: pictures of each batch.
  BatchOrder(const PictureSet& pictures, int64_t batch, uint64_t seed);

  /// Sizes that there are pictures of.
  const std::vector<PictureSize>& sizes() const { return sizes_; }
  struct Batch {
    size_t size = 0;               ///< which of sizes()
    std::vector<size_t> pictures;  ///< numbers in the set
  };
  /// Batch number `n`. As many batches as there are pictures are a cycle: of each size as many as it has pictures, in
  /// an order of the cycle's own, so that a cycle has every picture `batch` times. Batches of a size go through its
  /// pictures round by round, each once in an order of the round's own.
  Batch at(int64_t n) const;

 private:
  int64_t batch_;
  uint64_t seed_;
  std::vector<PictureSize> sizes_;
  std::vector<std::vector<size_t>> pictures_;  // of each size
};

}  // namespace tenon::train
