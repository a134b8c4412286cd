// The attention skeleton: streaming softmax; q, k and v are read where their heads lie in memory.
#include <cstddef>

#include "tenon/backend/cuda/attention/attention_route.h"
#include "tenon/backend/cuda/attention/key_count.h"
#include "tenon/backend/cuda/attention/paged_heads.h"
#include "tenon/backend/cuda/device/core_sizes.h"
#include "tenon/backend/cuda/launches/anchor_kernel.h"
#include "tenon/backend/cuda/libraries/dnn_choice.h"
#include "tenon/backend/cuda/products/tile_choice.h"
#include "tenon/core/error.h"
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
    TENON_CHECK(Usage, tensor_cores() || q[3] <= kMostDepth, name())
        << "heads of " << q[3] << " columns; at most " << kMostDepth;
    grouped_ = grouped_tile(form_, unit_);
    TENON_CHECK(Usage, form_.updates.empty() || writes_rows(form_, unit_), name())
        << "writes a state that it reads, which takes two launches here: its plan is for another device";
    for (const FormOutput& o : form_.updates) read_beside(o.value);
    paged_ = reads_pages(form_, unit_);
    for (size_t i = 0; i < 3; ++i) {
      if (i == 0 ? grouped_.depth > 0 : paged_) {
        operands_.push_back(form_.holes[i]);
        read_beside(form_.holes[i]);
      } else {
        operands_.push_back(padded_operand(i));
      }
    }
    sizes_.batch = checked_int(q[0]);
    sizes_.heads = checked_int(q[1]);
    sizes_.kv_heads = checked_int(k[1]);
    sizes_.queries = checked_int(q[2]);
    sizes_.keys = checked_int(k[2]);
    sizes_.depth = checked_int(q[3]);
    sizes_.scale = static_cast<float>(form_.anchor->attrs.nums[0]);
    sizes_.causal = form_.anchor->attrs.ints[0] != 0;
    if (grouped_.depth) grouped_ = over_keys(grouped_, sizes_.keys, this->device().facts().arch == "sm_90a");
    for (const FormOutput& o : form_.outputs)
      if (o.companion) lse_ = o.place;
    if (counted()) read_beside(form_.holes[3]);
    // But for one, cores that read boxes keep sums to themselves and are told the number of keys beforehand; libraries
    // too.
    if (grouped_.depth == 0) choose_boxes();
    if (!lse_ && grouped_.depth == 0 && !counted()) choose_library();
    if (grouped_.depth)
      reserve_split(attention_launch(grouped_, sizes_));
    else if (plan_)
      workspace_at_ = reserve_scratch(plan_->call->workspace_bytes());
    else if (!boxes_.empty() && wgmma_tile_.depth == 0)
      reserve_split(attention_launch(deep_tile_, sizes_));
    reserve_statistics();
  }

 private:
  // True if the number of keys is in memory.
  bool counted() const { return form_.holes.size() > 3; }
  Expr key_count() const { return counted() ? form_.holes[3] : Expr(); }

  // Takes a wgmma core where the operands come in boxes.
  void choose_boxes() {
    if (!tensor_cores() || device().facts().arch != "sm_90a" || !core_allowed(Core::Wgmma)) return;
    for (size_t i = 0; i < 3; ++i) {
      const auto rows = i > 0 && paged_ ? pages_of(i).rows : head_rows(operands_[i]);
      if (!rows) return boxes_.clear();
      boxes_.push_back(*rows);
    }
    const bool plain = !counted() && !lse_ && !paged_;
    const device::AttentionSizes sizes = sizes_to_choose_for();
    short_tile_ = plain ? pick_attention_short(sizes, device().facts()) : AttentionShortShape{.depth = 0};
    wgmma_tile_ = pick_attention_wgmma(sizes, device().facts(), paged_ ? pages_of(1).page : 0);
    if (wgmma_tile_.depth == 0) plain ? choose_deep() : boxes_.clear();
  }

  PagedHeads pages_of(size_t i) const { return *paged_heads(operands_[i], 1); }

  device::AttentionSizes sizes_to_choose_for() const {
    device::AttentionSizes out = sizes_;
    out.batch = checked_int(device().facts().samples_to_choose_for(out.batch));
    return out;
  }

  void choose_deep() {
    deep_tile_ = pick_attention_deep(sizes_.depth, device().facts());
    if (deep_tile_.depth == 0) return boxes_.clear();
    sizes_.split.splits = attention_deep_splits(deep_tile_, sizes_to_choose_for(), device().facts().multiprocessors);
  }

  // Takes a library's attention where that was measured to be faster.
  void choose_library() {
    if (!tensor_cores()) return;
    route_ = AttentionRoute::of(form_, operands_, unit_);
    if (route_) plan_ = choose_dnn(device(), route_->key(), route_->problem);
  }

  int own_calls() const override { return operand_calls() + (form_.domain.numel() > 0 ? 1 : 0); }

  int kernels_beside() const override {
    if (!plan_ || form_.domain.numel() == 0) return 0;
    return dnn_call(device(), name(), *plan_, route_->operands).call.library_kernels() - 1;
  }

  void make_calls() override {
    make_operands();
    if (form_.domain.numel() == 0) return;
    const auto library_call = [this](const DnnPlan& plan) {
      return dnn_call(device(), name(), plan, route_->operands);
    };
    if (route_ && tuning(device()))
      tune_dnn(
          device(), route_->key(), route_->problem, {}, [this] { return own_call(); }, library_call);
    if (plan_) return add(library_call(*plan_).call, {}, {{kLibraryWorkspace, workspace_at_}});
    TunedCall own = own_call();
    add_core(std::move(own.call), own.split_at);
  }

  TunedCall own_call() {
    Params params;
    params.set_sizes("AttentionSizes", sizes_);
    KernelParts text;
    text.name = name();
    if (grouped_.depth) return grouped_call(text, params);
    if (!boxes_.empty()) return box_call(text, params);
    for (size_t i = 0; i < 3; ++i) text.functors += rows_source(i, params, text.headers);
    text.functors += keys_source(key_count(), params, text.headers) + lse_source(params) +
                     epilogue_source(params, text.headers, tensor_cores() ? 8 : 4);
    text.headers = std::string("#include \"tenon/backend/cuda/device/") + (tensor_cores() ? "attention_mma" : "simt") +
                   ".h\"\n" + text.headers;
    return tensor_cores() ? streaming_call(text, params) : simt_call(text, params);
  }

  std::string rows_source(size_t i, Params& params, std::string& headers) {
    const std::string name(1, "QKV"[i]);
    if (i > 0 && paged_ && tensor_cores()) return paged_source(name, pages_of(i), operands_[i].shape(), params);
    return operand_source(name, operands_[i], 3, params, headers);
  }

  // "struct Lse { .. };": where the logarithm of each row's sum goes.
  std::string lse_source(Params& params) const {
    if (!lse_) return "using Lse = NoLse;\n";
    return "struct Lse {\n  static constexpr bool kWanted = true;\n  DEV static void store(const Params& p, int row, "
           "float "
           "value) { " +
           params.pointer(lse_, true) + "[row] = value; }\n};\n";
  }

  // "struct Fresh { .. };": rows of the caches that the launch makes itself.
  std::string fresh_source(Params& params, std::string& headers) const {
    if (form_.updates.empty()) return "using Fresh = NoFresh;\n";
    const auto functor = [&](const char* called, const Expr& value, int split, int most) {
      const ProgramOutput computed{value, {}, DType::F32};
      ProgramSource program(std::array{computed}, {value.shape(), split}, params, most);
      std::string text = program.functor(called);
      headers += program.includes();
      return text;
    };
    const FormOutput &keys = update_of(form_, 1), &values = update_of(form_, 2);
    const Expr& index = keys.place->in[1];
    const std::string count = params.integer("fresh", index.shape().numel());
    return functor("FreshKey", keys.value, keys.value.shape().rank() - 1, 8) +
           functor("FreshValue", values.value, values.value.shape().rank() - 1, 8) +
           functor("FreshPlace", index, 0, 1) +
           "struct Fresh {\n  static constexpr bool kGiven = true;\n  using Key = FreshKey;\n  using Value = "
           "FreshValue;\n  DEV static int count(const Params& p) { return " +
           count +
           "; }\n  DEV static int place(const Params& p, int j) { return static_cast<int>(FreshPlace::eval(p, 0, "
           "j).v[0]); }\n};\n";
  }

  // A core that reads boxes: its name, its tile's, keys of a box, and how it is launched.
  struct BoxCore {
    std::string name, tile;
    int box_keys, blocks;
    CoreLaunch launch;
  };
  BoxCore box_core() const {
    const int multiprocessors = device().facts().multiprocessors;
    if (short_tile_.depth)
      return {"attention_short", short_tile_.type(), short_tile_.keys / 2, 1,
              attention_launch(short_tile_, sizes_, multiprocessors)};
    if (wgmma_tile_.depth)
      return {"attention_wgmma", wgmma_tile_.type(), wgmma_tile_.keys, wgmma_tile_.blocks,
              attention_launch(wgmma_tile_, sizes_, multiprocessors)};
    return {"attention_deep", deep_tile_.type(), deep_tile_.keys, 1, attention_launch(deep_tile_, sizes_)};
  }

  TunedCall box_call(KernelParts& text, Params& params) {
    const BoxCore core = box_core();
    for (size_t i = 0; i < 3; ++i) {
      // All of a pool is one entry's.
      const auto pages = i > 0 && paged_ ? std::optional(pages_of(i)) : std::nullopt;
      const int batch = pages ? 1 : sizes_.batch, keys = pages ? checked_int(pages->pages * pages->page) : sizes_.keys;
      const auto box = [rows = boxes_[i], s = sizes_, queries = i == 0, box_keys = core.box_keys, batch,
                        keys](void* address) {
        return head_box(static_cast<std::byte*>(address) + rows.offset * 2, rows.strides, batch,
                        queries ? s.heads : s.kv_heads, queries ? s.queries : keys, s.depth, queries ? 64 : box_keys);
      };
      text.functors += std::string("struct ") + "QKV"[i] + " {\n  using T = " + type_source(unit_) +
                       ";\n  DEV static const TensorMap& map(const Params& p) { return " +
                       params.map(boxes_[i].leaf, box) + "; }\n" + (pages ? page_source(*pages, params) : "") + "};\n";
    }
    text.functors += epilogue_source(params, text.headers, 8) + "using Tile = " + core.tile + ";\n";
    const bool more = counted() || lse_;
    if (more) text.functors += keys_source(key_count(), params, text.headers) + lse_source(params);
    text.headers = "#include \"tenon/backend/cuda/device/" + core.name + ".h\"\n" + text.headers;
    text.name += " " + core.tile + (sizes_.split.splits > 1 ? " x" + std::to_string(sizes_.split.splits) : "");
    text.kernel = "KERNEL(Tile::kThreads, " + std::to_string(core.blocks) + ", Params, p) { " + core.name +
                  "<Tile, Q, K, V, Epilogue" + (more ? ", Keys, Lse" : "") + ">(p); }\n";
    return {KernelCall(device(), text, params, core.launch.shape), core.launch, kSplitAt};
  }

  TunedCall grouped_call(KernelParts& text, Params& params) {
    const ProgramOutput queries{operands_[0], {}, DType::F32};
    ProgramSource program(std::array{queries}, {operands_[0].shape(), 3}, params, 8);
    text.functors = program.functor("Q");
    text.headers += program.includes();
    for (size_t i = 1; i < 3; ++i) text.functors += rows_source(i, params, text.headers);
    text.functors += keys_source(key_count(), params, text.headers) + lse_source(params) +
                     fresh_source(params, text.headers) + epilogue_source(params, text.headers, 8) +
                     "using Tile = " + grouped_.type() + ";\n";
    text.headers = "#include \"tenon/backend/cuda/device/attention_grouped.h\"\n" + text.headers;
    text.name += " " + grouped_.type();
    text.kernel =
        "KERNEL(Tile::kThreads, Tile::kResident, Params, p) { attention_grouped<Tile, Q, K, V, Epilogue, Keys, Lse, "
        "Fresh>(p); }\n";
    const CoreLaunch launch = attention_launch(grouped_, sizes_);
    return {KernelCall(device(), text, params, launch.shape), launch, kSplitAt};
  }

  TunedCall streaming_call(KernelParts& text, const Params& params) {
    text.name += " " + tile_.type();
    text.functors += "using Tile = " + tile_.type() + ";\n";
    text.kernel = "KERNEL(Tile::kThreads, 1, Params, p) { attention_mma<Tile, Q, K, V, Epilogue, Keys, Lse>(p); }\n";
    return {KernelCall(device(), text, params, attention_launch(tile_, sizes_).shape), {}, kSplitAt};
  }

  TunedCall simt_call(KernelParts& text, const Params& params) {
    text.kernel = "KERNEL(kSimtAttentionThreads, 1, Params, p) { attention_simt<Q, K, V, Epilogue, Keys, Lse>(p); }\n";
    LaunchShape shape;
    shape.grid_x = static_cast<unsigned>(sizes_.queries);
    shape.grid_y = static_cast<unsigned>(sizes_.heads);
    shape.grid_z = static_cast<unsigned>(sizes_.batch);
    shape.threads = 128;
    shape.shared_bytes = static_cast<unsigned>((sizes_.depth + 128) * 4);
    return {KernelCall(device(), text, params, shape), {}, kSplitAt};
  }

  static constexpr size_t kSplitAt = offsetof(device::AttentionSizes, split);

  device::AttentionSizes sizes_;
  AttentionTileShape tile_;
  AttentionGroupedShape grouped_;  // takes the launch if it has a depth
  // Of the cores that read boxes, the first that has a depth.
  AttentionShortShape short_tile_;
  AttentionWgmmaShape wgmma_tile_;
  AttentionDeepShape deep_tile_;
  std::vector<HeadRows> boxes_;  // of q, k and v for those, or none
  std::vector<Expr> operands_;
  bool paged_ = false;                   // keys and values lie in pages
  Expr lse_;                             // where the second result goes, if it is wanted
  std::optional<AttentionRoute> route_;  // where a library could do it
  std::optional<DnnPlan> plan_;          // by which it does
  int64_t workspace_at_ = 0;
};

const RegisterBody kRegisteredAttention("attention", &LaunchBodies::body<AttentionKernel>);

}  // namespace
}  // namespace tenon::cuda
