// Attention with wgmma and boxes of heads of up to 256 columns; the key count may be in memory, and keys may be paged.
#include "tenon/backend/cuda/attention/attention_kernel.h"

namespace tenon::cuda {
namespace {

class AttentionWgmmaCore : public AttentionCore {
 public:
  std::string_view name() const override { return "wgmma"; }
  int preference() const override { return 2; }

  std::optional<AttentionChoice> take(const AttentionKernel& kernel) const override {
    if (!kernel.has_boxes()) return std::nullopt;
    const AttentionWgmmaShape tile =
        pick_attention_wgmma(kernel.sizes_to_choose_for(), kernel.device().facts(), kernel.page());
    if (tile.depth == 0) return std::nullopt;
    return AttentionChoice{.tile = tile.type(),
                           .needs = attention_needs(tile, kernel.sizes(), kernel.multiprocessors()),
                           .box_keys = tile.keys,
                           .resident = tile.blocks};
  }
};

const RegisterAttentionCore<AttentionWgmmaCore> kRegisteredAttentionWgmma;

}  // namespace
}  // namespace tenon::cuda
