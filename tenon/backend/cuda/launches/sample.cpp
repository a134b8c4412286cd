// The sample skeleton: one block, or one cluster, per row of scores, which lie in memory.
#include "tenon/backend/cuda/device/launches/sample_sizes.h"
#include "tenon/backend/cuda/launches/anchor_kernel.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {
namespace {

constexpr int kMaxKept = 512;  // scores kept in shared memory, per warp
// A long row takes a cluster and a short one a block, whatever the number of rows: a draw does not depend on the batch.
constexpr int kBlocksOfLongRow = 8, kLongRow = 16384;

class SampleKernel : public AnchorKernel {
 public:
  SampleKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : AnchorKernel(std::move(device), launch, std::move(form)),
        scores_(operand(0, form_.holes[0].shape(), [](const Expr& leaf) { return leaf; })) {
    for (size_t i = 1; i < form_.holes.size(); ++i) read_beside(form_.holes[i]);
    reserve_statistics();
  }

 private:
  int own_calls() const override { return operand_calls() + (form_.domain.numel() > 0 ? 1 : 0); }

  void make_calls() override {
    make_operands();
    if (form_.domain.numel() == 0) return;
    device::SampleSizes sizes{};
    sizes.tokens = checked_int(scores_.shape()[1]);
    const int blocks = device().facts().arch == "sm_90a" && sizes.tokens >= kLongRow ? kBlocksOfLongRow : 1;
    const int warps = device::sample_warps(blocks);
    const int room = (device().facts().shared_bytes - device::sample_shared_bytes(blocks, 0, 0)) / (4 * warps),
              part = static_cast<int>(div_up(sizes.tokens, blocks * warps));
    sizes.capacity = std::min(kMaxKept, room);
    sizes.held = sizes.capacity + part <= room ? part : 0;
    Params params;
    params.set_sizes("SampleSizes", sizes);
    KernelParts source;
    source.name = name();
    source.functors = element_source("Scores", scores_, 1, params, source.headers);
    static constexpr const char* kNames[] = {"", "Rule", "Seed", "Counter"};
    for (size_t i = 1; i < form_.holes.size(); ++i) {
      const Expr& hole = form_.holes[i];
      source.functors += element_source(kNames[i], hole, hole.shape().rank() - 1, params, source.headers);
    }
    source.functors += epilogue_source(params, source.headers, 1);
    source.headers = "#include \"tenon/backend/cuda/device/launches/sample.h\"\n" + source.headers;
    // Clusters find places sooner if two blocks fit on a multiprocessor.
    source.kernel = "KERNEL(" + std::to_string(32 * warps) + (blocks > 1 ? ", 2" : ", 1") + ", Params, p) { sample<" +
                    std::to_string(blocks) + ", Scores, Rule, Seed, Counter, Epilogue>(p); }\n";
    CallShape shape;
    shape.grid_x = blocks * scores_.shape()[0];
    shape.threads = 32 * warps;
    shape.cluster = blocks;
    shape.shared_bytes = device::sample_shared_bytes(blocks, sizes.capacity, sizes.held);
    add(KernelCall(device(), source, params, shape));
  }

  Expr scores_;
};

const RegisterBody kRegisteredSample("sample", &LaunchBodies::body<SampleKernel>);

}  // namespace
}  // namespace tenon::cuda
