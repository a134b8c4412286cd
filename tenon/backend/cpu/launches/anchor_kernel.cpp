#include "tenon/backend/cpu/launches/anchor_kernel.h"

namespace tenon::cpu {

void AnchorKernel::compile_epilogue(int64_t max_cols) {
  TapeOptions options;
  options.max_cols = max_cols;
  results_ = compile_results(options);
}

void AnchorKernel::compile_weight(const Expr& hole, const WeightGeometry& geometry) {
  geometry_ = geometry;
  if (of_weights_only(hole)) {
    constant_ = ask(packed_weights(hole, geometry, engine_));
    return;
  }
  weight_ = std::make_unique<WeightHole>(hole, geometry, leaves_, *engine_);
  geometry_.shape.on_the_fly = !weight_->tape() && !geometry.convolution && geometry.batch == 1 &&
                               geometry.shape.type == DType::BF16 && geometry.bytes() > l2_bytes();
  if (geometry_.shape.on_the_fly) return;
  weight_at_ = reserve_scratch(geometry.bytes());
  pack_scratch_at_ = reserve_scratch(weight_->pack_scratch());
  if (weight_->tape()) use(*weight_->tape());
}

const void* AnchorKernel::packed_weight(std::byte* scratch) {
  if (constant_) return weight(*constant_);
  if (geometry_.shape.on_the_fly) return nullptr;
  weight_->pack(
      *engine_, bases(), [this](int thread) { return workspace(thread); }, scratch + weight_at_,
      scratch + pack_scratch_at_);
  return scratch + weight_at_;
}

void AnchorKernel::write(const Block& block, float* const* acc, int64_t acc_ld, int thread) const {
  TapeCall call;
  call.block = block;
  call.bases = bases();
  call.workspace = workspace(thread);
  call.acc = acc;
  call.acc_ld = acc_ld;
  results_->run(call);
}

std::string AnchorKernel::summary(const std::vector<std::pair<const char*, std::string>>& holes) const {
  std::string out = engine_->tile.name;
  (out += ' ') += name_of(tiles_);
  for (const auto& [name, hole] : holes) (((out += ", ") += name) += ": ") += hole;
  return out += ", results: tape of " + std::to_string(results_->length());
}

}  // namespace tenon::cpu
