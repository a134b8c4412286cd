// Attention in f32 on the CUDA cores.
#include "tenon/backend/cuda/attention/attention_kernel.h"
#include "tenon/backend/cuda/attention/simt_tile.h"

namespace tenon::cuda {
namespace {

class AttentionSimtCore : public AttentionCore {
 public:
  std::string_view name() const override { return "simt"; }
  int preference() const override { return 5; }
  bool stands_in() const override { return true; }

  std::optional<AttentionChoice> take(const AttentionKernel& kernel) const override {
    if (kernel.tensor_cores()) return std::nullopt;
    const AttentionSimtShape tile = pick_attention_simt(kernel.sizes(), kernel.device().facts());
    if (tile.depth == 0) return std::nullopt;
    return AttentionChoice{.tile = tile.type(), .needs = attention_needs(tile, kernel.sizes())};
  }
};

const RegisterAttentionCore<AttentionSimtCore> kRegisteredAttentionSimt;

}  // namespace
}  // namespace tenon::cuda
