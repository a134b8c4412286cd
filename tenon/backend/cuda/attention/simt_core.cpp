// Attention in f32: plain arithmetic, any operands, computed where they are read.
#include "tenon/backend/cuda/attention/attention_kernel.h"

namespace tenon::cuda {
namespace {

class AttentionSimtCore : public AttentionCore {
 public:
  std::string_view name() const override { return "simt"; }
  int preference() const override { return 5; }
  bool stands_in() const override { return true; }

  std::optional<AttentionChoice> take(const AttentionKernel& kernel) const override {
    if (kernel.tensor_cores()) return std::nullopt;
    const device::AttentionSizes& s = kernel.sizes();
    AttentionChoice choice;
    choice.launch.shape = {.grid_x = static_cast<unsigned>(s.queries),
                           .grid_y = static_cast<unsigned>(s.heads),
                           .grid_z = static_cast<unsigned>(s.batch),
                           .threads = 128,
                           .shared_bytes = static_cast<unsigned>((s.depth + 128) * 4)};
    return choice;
  }
  TunedCall call(AttentionKernel& kernel, const AttentionChoice& choice) const override {
    return kernel.rows_call(
        choice, "simt",
        "KERNEL(kSimtAttentionThreads, 1, Params, p) { attention_simt<Q, K, V, Epilogue, Keys, Lse>(p); }\n");
  }
};

const RegisterAttentionCore<AttentionSimtCore> kRegisteredAttentionSimt;

}  // namespace
}  // namespace tenon::cuda
