// Attention over few keys, which stay in shared memory while a head's queries stream by: wgmma, boxes of heads.
#include "tenon/backend/cuda/attention/attention_kernel.h"

namespace tenon::cuda {
namespace {

class ShortCore : public AttentionCore {
 public:
  std::string_view name() const override { return "short"; }
  std::string_view asked_as() const override { return "wgmma"; }
  int preference() const override { return 1; }

  std::optional<AttentionChoice> take(const AttentionKernel& kernel) const override {
    if (!kernel.has_boxes() || !kernel.plain() || kernel.device().facts().one_order) return std::nullopt;
    const AttentionShortShape tile = pick_attention_short(kernel.sizes_to_choose_for(), kernel.device().facts());
    if (tile.depth == 0) return std::nullopt;
    return AttentionChoice{.tile = tile.type(),
                           .needs = attention_needs(tile, kernel.sizes(), kernel.multiprocessors()),
                           .box_keys = tile.keys / 2};
  }
};

const RegisterAttentionCore<ShortCore> kRegisteredShort;

}  // namespace
}  // namespace tenon::cuda
