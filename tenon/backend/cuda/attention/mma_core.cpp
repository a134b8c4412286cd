// Attention with mma, on every supported GPU: heads with any strides.
#include "tenon/backend/cuda/attention/attention_kernel.h"

namespace tenon::cuda {
namespace {

class AttentionMmaCore : public AttentionCore {
 public:
  std::string_view name() const override { return "mma"; }
  int preference() const override { return 4; }
  bool stands_in() const override { return true; }

  std::optional<AttentionChoice> take(const AttentionKernel& kernel) const override {
    if (!kernel.tensor_cores()) return std::nullopt;
    const AttentionTileShape tile = pick_attention_tile(kernel.sizes().depth, kernel.device().facts().shared_bytes,
                                                        attention_order(kernel.sizes(), kernel.device().facts()));
    return AttentionChoice{.tile = tile.type(), .needs = attention_needs(tile, kernel.sizes())};
  }
};

const RegisterAttentionCore<AttentionMmaCore> kRegisteredAttentionMma;

}  // namespace
}  // namespace tenon::cuda
