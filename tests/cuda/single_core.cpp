// A core of attention that is not in the tree, for heads of f16 and bf16. It is asked after all others.
#include "tenon/backend/cuda/attention/attention_kernel.h"

namespace tenon::cuda {
namespace {

class SingleCore : public AttentionCore {
 public:
  std::string_view name() const override { return "single"; }
  int preference() const override { return 100; }

  std::optional<AttentionChoice> take(const AttentionKernel& kernel) const override {
    if (!kernel.tensor_cores() || !kernel.plain()) return std::nullopt;
    const device::AttentionSizes& s = kernel.sizes();
    AttentionChoice choice{.tile = "one query a thread"};
    choice.needs.shape = {.grid_x = div_up(s.queries, 32), .grid_y = s.heads, .grid_z = s.batch, .threads = 32};
    return choice;
  }
  TunedCall call(AttentionKernel& kernel, const AttentionChoice& choice) const override {
    KernelParts source;
    Params params = kernel.begin(choice);
    for (size_t i = 0; i < 3; ++i) source.functors += kernel.rows_source(i, params, source.headers);
    source.functors += kernel.epilogue_source(params, source.headers, 8);
    source.headers = "#include \"tenon/backend/cuda/device/attention/attention_single.h\"\n" + source.headers;
    source.kernel = "KERNEL(kSingleThreads, 1, Params, p) { attention_single<Q, K, V, Epilogue>(p); }\n";
    return kernel.finish(choice, std::move(source), params);
  }
};

const RegisterAttentionCore<SingleCore> kRegisteredSingle;

}  // namespace
}  // namespace tenon::cuda
