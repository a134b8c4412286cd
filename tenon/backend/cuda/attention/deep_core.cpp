// Attention of heads of more than 256 columns: wgmma, boxes of heads, split-KV.
#include "tenon/backend/cuda/attention/attention_kernel.h"

namespace tenon::cuda {
namespace {

class DeepCore : public AttentionCore {
 public:
  std::string_view name() const override { return "deep"; }
  std::string_view asked_as() const override { return "wgmma"; }
  int preference() const override { return 3; }

  std::optional<AttentionChoice> take(const AttentionKernel& kernel) const override {
    if (!kernel.has_boxes() || !kernel.plain()) return std::nullopt;
    const AttentionDeepShape tile = pick_attention_deep(kernel.sizes().depth, kernel.device().facts());
    if (tile.depth == 0) return std::nullopt;
    device::AttentionSizes sizes = kernel.sizes();
    sizes.split.splits = attention_deep_splits(tile, kernel.sizes_to_choose_for(), kernel.multiprocessors());
    return AttentionChoice{.tile = tile.type(),
                           .needs = attention_needs(tile, sizes),
                           .splits = sizes.split.splits,
                           .box_keys = tile.keys};
  }
};

const RegisterAttentionCore<DeepCore> kRegisteredDeep;

}  // namespace
}  // namespace tenon::cuda
