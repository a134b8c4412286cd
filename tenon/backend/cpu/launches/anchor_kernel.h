// Common code of kernels with an anchor: element type of the tiles, packed weights, and passing tiles to the results'
// tape.
#pragma once
#include "tenon/backend/cpu/launches/holes.h"

namespace tenon::cpu {

class AnchorKernel : public LaunchKernel {
 protected:
  AnchorKernel(std::shared_ptr<Engine> engine, const Launch& launch, Form form)
      : LaunchKernel(std::move(engine), launch, std::move(form)), tiles_(tiles_of(launch)) {}

  /// Compiles the results for tiles of up to `max_cols` columns.
  void compile_epilogue(int64_t max_cols);
  /// Requests the packed form of weight hole `hole` if it is constant; otherwise compiles it and reserves scratch,
  /// unless a linear layer in bf16 reads so much from memory that it is better packed on the fly.
  void compile_weight(const Expr& hole, const WeightGeometry& geometry);
  /// The packed weight of this run; packs it unless it is constant. Null if it is packed on the fly.
  const void* packed_weight(std::byte* scratch);
  /// Packs some panels of a weight on the fly.
  void pack_panels(const PanelRange& range, std::byte* dst) const { weight_->pack(engine_->tile, bases(), range, dst); }

  /// Passes a tile to the results' tape.
  void write(const Block& block, float* const* acc, int64_t acc_ld, int thread) const;
  /// "amx bf16, a: tape of 5, results: tape of 3"
  std::string summary(const std::vector<std::pair<const char*, std::string>>& holes) const;

  DType tiles_;
  std::unique_ptr<Tape> results_;
  WeightGeometry geometry_;  ///< of the weight

 private:
  std::optional<size_t> constant_;      // index of the weight among the requests, if constant
  std::unique_ptr<WeightHole> weight_;  // otherwise
  int64_t weight_at_ = 0, pack_scratch_at_ = 0;
};

}  // namespace tenon::cpu
