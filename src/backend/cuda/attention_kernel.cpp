// The attention skeleton: streaming softmax; q, k and v are read where their heads lie in memory.
#include "tenon/backend/cuda/anchor_kernel.h"
#include "tenon/backend/cuda/attention_launch.h"
#include "tenon/core/error.h"
#include "tenon/device/core_sizes.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {
namespace {

constexpr int64_t kMostDepth = 512;  // of the f32 kernel: four results a thread

class AttentionKernel : public AnchorKernel {
 public:
  AttentionKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : AnchorKernel(std::move(device), launch, std::move(form)) {
    const Shape q = form_.holes[0].shape(), k = form_.holes[1].shape();
    tile_ = pick_attention_tile(checked_int(q[3]), this->device().facts().shared_bytes);
    // Its running maximum needs a positive scale.
    if (q[3] % 8 || tile_.depth == 0 || form_.anchor->attrs.nums[0] <= 0) arithmetic_ = DType::F32;
    TENON_CHECK(Usage, tensor_cores() || q[3] <= kMostDepth, name())
        << "heads of " << q[3] << " columns; at most " << kMostDepth;
    for (size_t i = 0; i < 3; ++i) operands_.push_back(padded_operand(i));
    sizes_.batch = checked_int(q[0]);
    sizes_.heads = checked_int(q[1]);
    sizes_.kv_heads = checked_int(k[1]);
    sizes_.queries = checked_int(q[2]);
    sizes_.keys = checked_int(k[2]);
    sizes_.depth = checked_int(q[3]);
    sizes_.scale = static_cast<float>(form_.anchor->attrs.nums[0]);
    sizes_.causal = form_.anchor->attrs.ints[0] != 0;
    reserve_statistics();
  }

 private:
  void make_steps() override {
    make_operands();
    if (form_.domain.numel() == 0) return;
    Params params;
    params.set_sizes("AttentionSizes", sizes_);
    KernelText text;
    text.name = name();
    for (size_t i = 0; i < 3; ++i)
      text.functors += operand_text(std::string(1, "QKV"[i]), operands_[i], 3, params, text.headers);
    text.functors += epilogue_text(params, text.headers, tensor_cores() ? 8 : 4);
    text.headers =
        std::string("#include \"tenon/device/") + (tensor_cores() ? "attention_mma" : "simt") + ".h\"\n" + text.headers;
    tensor_cores() ? add_streaming(text, params) : add_plain(text, params);
  }

  void add_streaming(KernelText& text, const Params& params) {
    text.name += " " + tile_.type();
    text.functors += "using Tile = " + tile_.type() + ";\n";
    text.kernel = "KERNEL(Tile::kThreads, 1, Params, p) { attention_mma<Tile, Q, K, V, Epilogue>(p); }\n";
    add(Step(device(), text, params, attention_launch(tile_, sizes_).shape));
  }

  void add_plain(KernelText& text, const Params& params) {
    text.kernel = "KERNEL(kSimtAttentionThreads, 1, Params, p) { attention_simt<Q, K, V, Epilogue>(p); }\n";
    LaunchShape shape;
    shape.grid_x = static_cast<unsigned>(sizes_.queries);
    shape.grid_y = static_cast<unsigned>(sizes_.heads);
    shape.grid_z = static_cast<unsigned>(sizes_.batch);
    shape.threads = 128;
    shape.shared_bytes = static_cast<unsigned>((sizes_.depth + 128) * 4);
    add(Step(device(), text, params, shape));
  }

  device::AttentionSizes sizes_;
  AttentionTileShape tile_;
  std::vector<Expr> operands_;
};

const RegisterBody kRegistered("attention", &LaunchBodies::body<AttentionKernel>);

}  // namespace
}  // namespace tenon::cuda
