// The attention skeleton: streaming softmax; q, k and v are read where their heads lie in memory.
#include "tenon/backend/cuda/anchor_kernel.h"
#include "tenon/backend/cuda/attention_launch.h"
#include "tenon/backend/cuda/tile_choice.h"
#include "tenon/core/error.h"
#include "tenon/device/core_sizes.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/affine.h"

namespace tenon::cuda {
namespace {

constexpr int64_t kMostDepth = 512;  // of the f32 kernel: four results a thread

// An operand [batch, heads, tokens, depth] that the copy engine can read.
struct HeadRows {
  Expr leaf;
  int64_t offset;  // elements from the leaf's first
  HeadStrides strides;
};

// Nothing if the operand is no single tensor of 2-byte elements in strides of whole 16 bytes.
std::optional<HeadRows> head_rows(const Expr& operand) {
  const Shape shape = operand.shape();
  const auto pieces = affine_pieces(operand, shape, 3);
  if (!pieces || pieces->size() != 1) return std::nullopt;
  const AffinePiece& p = pieces->front();
  if (!p.leaf || p.offset % 8 || p.cols.size() != 1 || p.cols[0].step != 1) return std::nullopt;
  std::vector<Digit> rows = p.rows;
  int64_t strides[3];  // of batches, heads, tokens
  for (int axis = 2; axis >= 0; --axis) {
    strides[axis] = 8;  // of an axis with one place: any
    if (shape[axis] == 1) continue;
    Digit& inner = rows.back();
    if (inner.extent % shape[axis] || inner.step <= 0 || inner.step % 8) return std::nullopt;
    strides[axis] = inner.step;
    inner = {inner.extent / shape[axis], inner.step * shape[axis]};
    if (inner.extent == 1 && rows.size() > 1) rows.pop_back();
  }
  return HeadRows{p.leaf, p.offset, {strides[2], strides[1], strides[0]}};
}

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
    choose_boxes();
    reserve_statistics();
  }

 private:
  // Takes a wgmma core where the operands come in boxes.
  void choose_boxes() {
    if (!tensor_cores() || device().facts().arch != "sm_90a" || !core_allowed(Core::Wgmma)) return;
    for (const Expr& operand : operands_) {
      const auto rows = head_rows(operand);
      if (!rows) return boxes_.clear();
      boxes_.push_back(*rows);
    }
    wgmma_tile_ = pick_attention_wgmma(sizes_, device().facts());
    if (wgmma_tile_.depth == 0) choose_deep();
  }

  void choose_deep() {
    deep_tile_ = pick_attention_deep(sizes_.depth, device().facts());
    if (deep_tile_.depth == 0) return boxes_.clear();
    sizes_.split.splits = attention_deep_splits(deep_tile_, sizes_, device().facts().multiprocessors);
    reserve_split(attention_launch(deep_tile_, sizes_));
  }

  void make_steps() override {
    make_operands();
    if (form_.domain.numel() == 0) return;
    Params params;
    params.set_sizes("AttentionSizes", sizes_);
    KernelText text;
    text.name = name();
    if (!boxes_.empty()) return add_wgmma(text, params);
    for (size_t i = 0; i < 3; ++i)
      text.functors += operand_text(std::string(1, "QKV"[i]), operands_[i], 3, params, text.headers);
    text.functors += epilogue_text(params, text.headers, tensor_cores() ? 8 : 4);
    text.headers =
        std::string("#include \"tenon/device/") + (tensor_cores() ? "attention_mma" : "simt") + ".h\"\n" + text.headers;
    tensor_cores() ? add_streaming(text, params) : add_plain(text, params);
  }

  void add_wgmma(KernelText& text, Params& params) {
    const bool deep = wgmma_tile_.depth == 0;
    const std::string core = deep ? "attention_deep" : "attention_wgmma";
    const std::string tile = deep ? deep_tile_.type() : wgmma_tile_.type();
    const int box_keys = deep ? deep_tile_.keys : wgmma_tile_.keys;
    for (size_t i = 0; i < 3; ++i) {
      const auto box = [rows = boxes_[i], s = sizes_, queries = i == 0, box_keys](void* address) {
        return head_box(static_cast<std::byte*>(address) + rows.offset * 2, rows.strides, s.batch,
                        queries ? s.heads : s.kv_heads, queries ? s.queries : s.keys, s.depth, queries ? 64 : box_keys);
      };
      text.functors += std::string("struct ") + "QKV"[i] + " {\n  using T = " + type_text(arithmetic_) +
                       ";\n  DEV static const TensorMap& map(const Params& p) { return " +
                       params.map(boxes_[i].leaf, box) + "; }\n};\n";
    }
    text.functors += epilogue_text(params, text.headers, 8) + "using Tile = " + tile + ";\n";
    text.headers = "#include \"tenon/device/" + core + ".h\"\n" + text.headers;
    text.name += " " + tile + (sizes_.split.splits > 1 ? " x" + std::to_string(sizes_.split.splits) : "");
    text.kernel = "KERNEL(Tile::kThreads, " + std::to_string(deep ? 1 : wgmma_tile_.blocks) + ", Params, p) { " + core +
                  "<Tile, Q, K, V, Epilogue>(p); }\n";
    const CoreLaunch launch = deep ? attention_launch(deep_tile_, sizes_)
                                   : attention_launch(wgmma_tile_, sizes_, device().facts().multiprocessors);
    add_core(Step(device(), text, params, launch.shape), offsetof(device::AttentionSizes, split));
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
  AttentionWgmmaShape wgmma_tile_;  // depth 0: deep_tile_
  AttentionDeepShape deep_tile_;
  std::vector<HeadRows> boxes_;  // of q, k and v for wgmma, or none
  std::vector<Expr> operands_;
};

const RegisterBody kRegistered("attention", &LaunchBodies::body<AttentionKernel>);

}  // namespace
}  // namespace tenon::cuda
