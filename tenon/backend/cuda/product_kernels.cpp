// The gemm and conv2d skeletons: tensor cores for f16, bf16 and e4m3, plain f32 arithmetic elsewhere.
#include <algorithm>
#include <cstddef>

#include "tenon/backend/cuda/anchor_kernel.h"
#include "tenon/backend/cuda/conv_route.h"
#include "tenon/backend/cuda/core_launch.h"
#include "tenon/backend/cuda/dnn_choice.h"
#include "tenon/backend/cuda/matmul_route.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {
namespace {

// "8192x320x320".
std::string joined(std::initializer_list<int> numbers) {
  std::string out;
  for (int n : numbers) out += (out.empty() ? "" : "x") + std::to_string(n);
  return out;
}

// Both kinds. A kind supplies its sizes (with a member `split`), operands and boxes, and makes the step of any choice;
// this chooses, measures and adds it.
class ProductKernel : public AnchorKernel {
 protected:
  using AnchorKernel::AnchorKernel;

  /// A product of m x n x k. `wgmma_tiles_m`: tiles along m, or nothing if boxes do not fit the operands.
  void choose(int64_t m, int64_t n, int64_t k, int64_t batch, const std::string& key,
              std::function<int64_t(const WgmmaTileShape&)> wgmma_tiles_m, bool mma = true) {
    product_.m = m;
    product_.n = n;
    product_.k = k;
    product_.batch = batch;
    product_.lanes = lanes();
    product_.element_bytes = size_of(unit_);
    product_.wgmma_tiles_m = std::move(wgmma_tiles_m);
    // mma multiplies e4m3 on sm_89 only: on sm_90a it converts, and wgmma takes all that is multiplied in e4m3 there.
    product_.mma = mma && (unit_ != DType::E4M3 || device().facts().arch != "sm_90a");
    product_.counts = std::any_of(form_.outputs.begin(), form_.outputs.end(),
                                  [](const FormOutput& o) { return o.statistic != nullptr; });
    product_.key = key + " lanes " + std::to_string(lanes()) + " bytes " + std::to_string(size_of(unit_));
    if (route_) {
      product_.epilogue = route_->epilogue();
      product_.matmul = route_->problem();
      product_.library = [this] { return this->device().matmul_library(); };
    }
    if (tensor_cores()) choice_ = choose_tile(product_, device().facts());
    const bool layers = choose_layers(), library = layers || choice_.core == Core::CublasLt;
    if (own_.leaf && (!library || tunes())) ask_packed(own_.leaf, {own_.piece});
    if (own_.leaf && library) ask_packed(in_order_.leaf, {in_order_.piece});
    if (layers) return;
    library ? reserve_library() : reserve_split(core_launch(choice_));
  }

  /// Operand B, hole 1, stored as [rows][..]: `stored`, its rows padded to blocks of 32, and `layout` from a leaf of
  /// that shape to the hole's view of it. Constants lie in runs where a lane is whole blocks; for a library they lie in
  /// order. Which of the two is kept is decided by choose().
  Expr weight_operand(Shape stored, const Layout& layout) {
    const Expr& hole = form_.holes[1];
    const int64_t rows = stored[0];
    if (!tensor_cores() || !of_weights_only(hole)) return in_order_.leaf = operand(1, stored, layout);
    const Expr value = without_rounding(hole, unit_);
    in_order_.leaf = input(*form_.graph, "hole.1.in_order", unit_, stored);
    in_order_.piece = {value, layout(in_order_.leaf)};
    in_runs_ = lanes() == 1 || rows % (32 * lanes()) == 0;
    if (lanes() == 1) stored[0] = div_up(rows, 32) * 32;
    own_.leaf = input(*form_.graph, "hole.1", unit_, stored);
    own_.piece = {value, layout(slice(in_runs_ ? in_runs(own_.leaf) : own_.leaf, 0, 0, rows))};
    return own_.leaf;
  }
  const Expr& in_order() const { return in_order_.leaf; }
  bool in_runs_ = false;  ///< operand B lies in runs

  virtual CoreLaunch core_launch(const TileChoice& choice) const = 0;
  virtual TunedStep step(const TileChoice& choice) = 0;
  virtual const Expr& constant() const = 0;
  /// For a kind that a library of network layers has: true if the launch runs on it, whose memory is reserved then.
  virtual bool choose_layers() { return false; }
  /// Adds its steps, if it was chosen.
  virtual bool add_layers() { return false; }
  /// How many these are: none if it was not.
  virtual int layer_steps() const { return 0; }
  /// Measures it beside the step of ours.
  virtual void measure_layers(const std::function<TunedStep()>& own) { static_cast<void>(own); }
  const std::string& key() const { return product_.key; }

  void make_steps() final {
    make_operands();
    if (form_.domain.numel() == 0) return;
    if (tunes()) measure();
    if (add_layers()) return;
    TunedStep made = step_of(choice_);
    for (Step& before : made.before) add(std::move(before));
    if (choice_.core == Core::CublasLt)
      return add(std::move(made.step), {}, {{kLibraryWorkspace, library_workspace_at_}});
    std::vector<std::pair<size_t, int64_t>> scratch;
    if (const Counted* c = counted_in_core()) {
      scratch.emplace_back(made.count_at + offsetof(device::CountSizes, partials), c->partials_at);
      scratch.emplace_back(made.count_at + offsetof(device::CountSizes, rows), c->rows_at);
    }
    add_core(std::move(made.step), made.split_at, std::move(scratch));
  }

  int own_steps() const final {
    if (form_.domain.numel() == 0) return operand_steps();
    if (const int layers = layer_steps()) return operand_steps() + layers;
    return operand_steps() + (choice_.core == Core::CublasLt && fills_bias() ? 2 : 1);
  }

  bool tunes() const { return tensor_cores() && tuning(device()); }

  void measure() {
    count_in_core(false);
    tune_tiles(device(), product_, {constant(), in_order()}, [this](const TileChoice& c) { return step_of(c); });
    measure_layers([this] { return step_of(choose_tile(product_, device().facts())); });
    count_in_core(true);
  }

  TunedStep step_of(const TileChoice& choice) {
    if (choice.core != Core::CublasLt) return step(choice);
    return route_->step(device(), name(), choice.algorithm, fills_bias());
  }

  bool fills_bias() const {
    const Expr& bias = route_->bias().value;
    return bias && !of_weights_only(bias);
  }

  // Memory that the library works in, and its bias where that is not the launch's own.
  void reserve_library() {
    const TunedStep made = route_->step(device(), name(), choice_.algorithm, false);
    library_workspace_at_ = reserve_scratch(made.launch.workspace_bytes);
    const MatmulRoute::Bias& bias = route_->bias();
    if (!bias.value) return;
    if (of_weights_only(bias.value))
      ask_packed(bias.leaf, {{bias.value, bias.leaf}});
    else
      place_in_scratch(bias.leaf);
  }

  template <class Sizes>
  TunedStep simt_step(const std::string& kernel, const char* type, const Sizes& sizes, const Expr& a, const Expr& b,
                      int b_split) {
    KernelText text;
    text.name = name();
    Params params;
    params.set_sizes(type, sizes);
    text.functors = operand_text("A", a, a.shape().rank() - 1, params, text.headers) +
                    operand_text("B", b, b_split, params, text.headers) + epilogue_text(params, text.headers, 4);
    text.headers = "#include \"tenon/backend/cuda/device/simt.h\"\n" + text.headers;
    text.kernel = "KERNEL(kSimtThreads, 1, Params, p) { " + kernel + "_simt<A, B, Epilogue>(p); }\n";
    LaunchShape launch;
    launch.grid_x = static_cast<unsigned>(div_up(product_.n / lanes(), 64));
    launch.grid_y = static_cast<unsigned>(div_up(product_.m, 64));
    launch.grid_z = static_cast<unsigned>(product_.batch);
    launch.threads = 256;
    launch.shared_bytes = static_cast<unsigned>((1 + lanes()) * 16 * 68 * 4);
    return {Step(device(), text, params, launch), {}, offsetof(Sizes, split), offsetof(Sizes, count)};
  }

  template <class Sizes>
  TunedStep mma_step(const TileChoice& choice, const std::string& kernel, const char* type, Sizes sizes, const Expr& a,
                     const Expr& b, int b_split) {
    KernelText text;
    Params params;
    sizes.split.splits = choice.splits;
    if (counted_in_core()) sizes.count = counted_in_core()->sizes;
    params.set_sizes(type, sizes);
    text.functors = operand_text("A", a, a.shape().rank() - 1, params, text.headers) +
                    operand_text("Rows", b, b_split, params, text.headers) + with_runs(in_runs_) +
                    epilogue_text(params, text.headers, 8);
    return core_step<Sizes>(choice, std::move(text), kernel + "_mma", choice.mma.type(), 1, params);
  }

  /// `box_a`, `box_b`: of one tensor of the operand, from its address, its columns and the elements between its rows.
  template <class Sizes>
  TunedStep wgmma_step(const TileChoice& choice, const std::string& kernel, const char* type, Sizes sizes,
                       const Expr& a, const MakeRowsBox& box_a, const Expr& b, const MakeRowsBox& box_b) {
    KernelText text;
    Params params;
    sizes.split.splits = choice.splits;
    if (counted_in_core()) sizes.count = counted_in_core()->sizes;
    params.set_sizes(type, sizes);
    text.functors = map_text("A", a, params, box_a) + map_text("Rows", b, params, box_b) + with_runs(in_runs_) +
                    epilogue_text(params, text.headers, 8);
    return core_step<Sizes>(choice, std::move(text), kernel + "_wgmma", choice.wgmma.type(), choice.wgmma.resident,
                            params);
  }

  bool can_count() const {
    const bool runs = choice_.core == Core::Wgmma || (choice_.core == Core::Mma && choice_.mma.has_runs(lanes()));
    return runs && product_.batch == 1 && lanes() == form_.lanes;
  }
  /// Tiles of rows in plain order, for a value seen as [samples, inner, channels].
  CountTiles tiles_of_rows(const Shape& seen) const {
    if (!can_count()) return {};
    const bool mma = choice_.core == Core::Mma;
    const int64_t rows = mma ? choice_.mma.m : choice_.wgmma.m;
    const int64_t of_warp = mma ? choice_.mma.m / choice_.mma.warps_m : wgmma_warp_rows();
    return {slots_of_rows(seen[0], seen[1], rows, of_warp), rows};
  }
  /// Rows that a warp adds up: where it has two pieces of the tile, the whole tile must lie in one sample.
  int64_t wgmma_warp_rows() const { return choice_.wgmma.m > 128 ? choice_.wgmma.m : 16; }
  const TileChoice& choice() const { return choice_; }

  std::optional<MatmulRoute> route_;  ///< by a library, where it could do all of it; before choose()

 private:
  template <class Sizes>
  TunedStep core_step(const TileChoice& choice, KernelText text, const std::string& kernel, const std::string& tile,
                      int resident, const Params& params) {
    text.name = name() + " " + std::string(name_of(unit_)) + " " + tile +
                (choice.splits > 1 ? " x" + std::to_string(choice.splits) : "");
    text.headers = "#include \"tenon/backend/cuda/device/" + kernel + ".h\"\n" + text.headers;
    text.functors += "using Tile = " + tile + ";\n";
    text.kernel = "KERNEL(Tile::kThreads, " + std::to_string(resident) + ", Params, p) { " + kernel +
                  "<Tile, A, B, Epilogue>(p); }\n";
    const CoreLaunch launch = core_launch(choice);
    return {Step(device(), text, params, launch.shape), launch, offsetof(Sizes, split), offsetof(Sizes, count)};
  }

  // Constant weights as our cores read them, and in plain order.
  struct Weights {
    Expr leaf;
    PackedPiece piece;
  };
  Weights own_, in_order_;
  int64_t library_workspace_at_ = 0;
  ProductShape product_{};
  TileChoice choice_;
};

class GemmKernel : public ProductKernel {
 public:
  GemmKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : ProductKernel(std::move(device), launch, std::move(form)) {
    const Shape x = form_.holes[0].shape(), w = form_.holes[1].shape();
    const bool batched = nodes::Linear::batched(x, w);
    sizes_.m = checked_int(batched ? x[-2] : x.rows());
    sizes_.n = checked_int(w[-2]);
    sizes_.batch = checked_int(batched && sizes_.m ? x.rows() / sizes_.m : 1);
    a_ = padded_operand(0);
    sizes_.k = checked_int(a_.shape()[-1]);
    if (batched)
      b_ = padded_operand(1);
    else
      b_ = weight_operand({w[0], sizes_.k}, [&](const Expr& leaf) { return slice(leaf, -1, 0, w[1]); });
    if (tensor_cores()) route_ = MatmulRoute::of(form_, a_, batched ? b_ : in_order(), sizes_.batch);
    const auto tiles_m = [this](const WgmmaTileShape& tile) { return div_up(sizes_.m, tile.m); };
    const bool boxes = tensor_cores() && rows_in_boxes(a_, unit_) && rows_in_boxes(b_, unit_) &&
                       (in_runs_ || sizes_.n % (8 * lanes()) == 0);
    choose(sizes_.m, sizes_.n, sizes_.k, sizes_.batch,
           "gemm " + joined({sizes_.m, sizes_.n, sizes_.k}) + " batch " + std::to_string(sizes_.batch),
           boxes ? tiles_m : std::function<int64_t(const WgmmaTileShape&)>());
    reserve_statistics([this](const Shape& seen) { return tiles_of_rows(seen); });
  }

 private:
  CoreLaunch core_launch(const TileChoice& choice) const override {
    device::GemmSizes sizes = sizes_;
    sizes.split.splits = choice.splits;
    if (choice.core == Core::Mma) return gemm_launch(choice.mma, sizes, lanes());
    if (choice.core == Core::Simt) return {};
    return gemm_launch(choice.wgmma, sizes, lanes(), device().facts().multiprocessors);
  }
  const Expr& constant() const override { return b_; }

  TunedStep step(const TileChoice& choice) override {
    const int b_split = b_.shape().rank() - 1;
    if (choice.core == Core::Simt) return simt_step("gemm", "GemmSizes", sizes_, a_, b_, b_split);
    if (choice.core == Core::Mma) return mma_step(choice, "gemm", "GemmSizes", sizes_, a_, b_, b_split);
    const int bytes = static_cast<int>(size_of(unit_));
    const auto box = [bytes](int64_t rows, int box_rows) {
      return [=](void* address, int64_t columns, int64_t stride) {
        return rows_box(address, bytes, rows, columns, stride * bytes, box_rows);
      };
    };
    const int64_t rows_b = b_.shape().rows();
    const auto box_in_order = [=](void* address, int64_t columns, int64_t stride) {
      return runs_box(address, bytes, rows_b, columns, stride * bytes);
    };
    return wgmma_step(choice, "gemm", "GemmSizes", sizes_, a_, box(a_.shape().rows(), choice.wgmma.m), b_,
                      in_runs_ ? MakeRowsBox(box(rows_b, choice.wgmma.rows_of_b(lanes()))) : box_in_order);
  }

  device::GemmSizes sizes_;
  Expr a_, b_;
};

class ConvKernel : public ProductKernel {
 public:
  ConvKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : ProductKernel(std::move(device), launch, std::move(form)) {
    const Shape w = form_.holes[1].shape();
    if (doubles()) {
      form_.holes[0] = form_.holes[0]->in[0];
      sizes_.phases = 2;
    }
    a_ = padded_operand(0);
    const int64_t channels = a_.shape()[-1];
    if (sizes_.phases == 2)
      keep_phases(channels);
    else if (tensor_cores())
      b_ = weight_operand({w[0], w[2], w[3], channels}, [&](const Expr& leaf) {
        return permute(slice(leaf, -1, 0, w[1]), {0, 3, 1, 2});
      });
    else
      b_ = padded_operand(1);
    fill_sizes(channels);
    const int bytes = static_cast<int>(size_of(unit_));
    const auto tiles_m = [this](const WgmmaTileShape& tile) {
      device::ConvSizes c = sizes_;
      choose_box(tile, c);
      return div_up(c.out_width, c.box_width) * div_up(c.out_height, c.box_height) * div_up(c.batch, c.box_images);
    };
    const bool boxes = tensor_cores() && conv_fits_boxes(sizes_, bytes) && rows_in_boxes(a_, unit_) &&
                       (sizes_.stride == 1 || dense(a_)) && dense(b_) && (in_runs_ || w[0] % (8 * lanes()) == 0);
    const device::ConvSizes& c = sizes_;
    const char* input = c.phases > 1                         ? "conv2d of twice "
                        : form_.holes[0].is<nodes::Resize>() ? "conv2d of resized "
                                                             : "conv2d ";
    choose(int64_t{c.batch} * c.out_height * c.out_width, int64_t{c.outputs} * c.phases * c.phases,
           int64_t{c.kernel_h} * c.kernel_w * channels, 1,
           input + joined({c.batch, c.height, c.width, c.channels}) + " -> " +
               joined({c.out_height, c.out_width, c.outputs}) + " by " + joined({c.kernel_h, c.kernel_w, c.stride}),
           boxes ? tiles_m : std::function<int64_t(const WgmmaTileShape&)>(), c.phases == 1);
    reserve_statistics([this](const Shape& seen) {
      CountTiles tiles = tiles_of_rows(seen);
      if (choice().core == Core::Wgmma)
        tiles = {can_count() ? slots_in_boxes(seen) : 0, 0, boxes_are_whole(sizes_for(choice()), choice().wgmma.m)};
      return tiles;
    });
  }

 private:
  // True if the input is another one at twice its size, which the wgmma core reads as it is.
  bool doubles() const {
    const Expr &x = form_.holes[0], &w = form_.holes[1];
    const std::vector<int64_t> same = {1, 1, 1, 1, 1};  // stride, and padding on four sides
    if (!tensor_cores() || device().facts().arch != "sm_90a" || !core_allowed(Core::Wgmma) || !x.is<nodes::Resize>())
      return false;
    const Shape from = x->in[0].shape();
    if (is_view_chain(x->in[0]) && !rows_in_boxes(x->in[0], unit_)) return false;
    return x.shape()[1] == 2 * from[1] && x.shape()[2] == 2 * from[2] && from[3] * size_of(unit_) % 128 == 0 &&
           w.shape()[0] % 32 == 0 && w.shape()[2] == 3 && w.shape()[3] == 3 && form_.anchor->attrs.ints == same &&
           lanes() == 1 && form_.lanes == 1 && of_weights_only(w) && is_view_chain(without_rounding(w, unit_));
  }

  // The four filters of 2 x 2 taps, sums of those taps that meet the same pixel: of an even row the last two, of an odd
  // one the first two. Summed in f32, rounded once.
  void keep_phases(int64_t channels) {
    const Expr& hole = form_.holes[1];
    const Expr w = without_rounding(hole, unit_);
    const bool rounds = w != hole;
    const int64_t outputs = w.shape()[0], inputs = w.shape()[1];
    b_ = input(*form_.graph, "hole.1", unit_, {4 * outputs, 2, 2, channels});
    in_runs_ = true;
    const Expr filters = in_runs(b_);
    struct Range {
      int64_t begin, end;
    };
    constexpr Range kTaps[2][2] = {{{0, 1}, {1, 3}}, {{0, 2}, {2, 3}}};
    std::vector<PackedPiece> pieces;
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t phase = i / 4, tap_y = i / 2 % 2, tap_x = i % 2;
      const Range rows = kTaps[phase / 2][tap_y], columns = kTaps[phase % 2][tap_x];
      Expr sum;
      for (int64_t y = rows.begin; y < rows.end; ++y)
        for (int64_t x = columns.begin; x < columns.end; ++x) {
          Expr tap = slice(slice(w, 2, y, y + 1), 3, x, x + 1);
          if (rounds) tap = cast(tap, unit_);
          tap = cast(tap, DType::F32);
          sum = sum ? sum + tap : tap;
        }
      const Expr part = slice(slice(slice(filters, 0, phase * outputs, (phase + 1) * outputs), 1, tap_y, tap_y + 1), 2,
                              tap_x, tap_x + 1);
      pieces.push_back({sum, permute(slice(part, -1, 0, inputs), {0, 3, 1, 2})});
    }
    ask_packed(b_, pieces);
  }

  void fill_sizes(int64_t channels) {
    const Shape x = form_.holes[0].shape(), w = form_.holes[1].shape(), y = form_.anchor.shape();
    const std::vector<int64_t>& p = form_.anchor->attrs.ints;  // stride, top, left, bottom, right
    sizes_.batch = checked_int(x[0]);
    sizes_.height = checked_int(x[1]);
    sizes_.width = checked_int(x[2]);
    sizes_.channels = checked_int(channels);
    sizes_.out_height = checked_int(y[1]) / sizes_.phases;
    sizes_.out_width = checked_int(y[2]) / sizes_.phases;
    sizes_.outputs = checked_int(w[0]);
    sizes_.kernel_h = sizes_.phases == 2 ? 2 : checked_int(w[2]);
    sizes_.kernel_w = sizes_.phases == 2 ? 2 : checked_int(w[3]);
    sizes_.stride = checked_int(p[0]);
    sizes_.pad_top = checked_int(p[1]);
    sizes_.pad_left = checked_int(p[2]);
  }

  CoreLaunch core_launch(const TileChoice& choice) const override {
    device::ConvSizes sizes = sizes_for(choice);
    if (choice.core == Core::Mma) return conv_launch(choice.mma, sizes, lanes());
    if (choice.core == Core::Simt) return {};
    return conv_launch(choice.wgmma, sizes, lanes(), device().facts().multiprocessors);
  }
  // Partial sums a sample where the boxes of a tile keep samples apart.
  int64_t slots_in_boxes(const Shape& seen) const {
    const device::ConvSizes c = sizes_for(choice());
    const int64_t phases = int64_t{c.phases} * c.phases;
    if (seen[0] != c.batch || seen[1] != int64_t{c.out_height} * c.out_width * phases) return 0;
    if (wgmma_warp_rows() > 16 && c.box_images > 1) return 0;
    return slots_of_boxes(c) * phases;
  }
  device::ConvSizes sizes_for(const TileChoice& choice) const {
    device::ConvSizes sizes = sizes_;
    sizes.split.splits = choice.splits;
    if (choice.core == Core::Wgmma) choose_box(choice.wgmma, sizes);
    return sizes;
  }
  const Expr& constant() const override { return b_; }

  TunedStep step(const TileChoice& choice) override {
    const device::ConvSizes sizes = sizes_for(choice);
    if (choice.core == Core::Simt) return simt_step("conv", "ConvSizes", sizes, a_, b_, 1);
    if (choice.core == Core::Mma) return mma_step(choice, "conv", "ConvSizes", sizes, a_, b_, 1);
    const int bytes = static_cast<int>(size_of(unit_));
    const auto pixels = [sizes, bytes](void* address, int64_t columns, int64_t stride) {
      TensorBox box = pixels_box(address, bytes, sizes, checked_int(stride));
      if (sizes.stride == 1) box.extent[0] = columns;
      return box;
    };
    const auto taps = [=, this, rows = b_.shape()[0]](void* address, int64_t, int64_t) {
      return in_runs_ ? taps_box(address, bytes, sizes, rows, choice.wgmma.rows_of_b(lanes()))
                      : taps_runs_box(address, bytes, sizes, rows);
    };
    return wgmma_step(choice, "conv", "ConvSizes", sizes, a_, pixels, b_, taps);
  }

  bool choose_layers() override {
    if (!tensor_cores() || sizes_.phases > 1) return false;
    const std::vector<int64_t>& p = form_.anchor->attrs.ints;  // stride, top, left, bottom, right
    const device::ConvSizes& c = sizes_;
    const DnnConv sizes = {unit_,      c.batch,    c.height, c.width, c.channels, c.out_height, c.out_width, c.outputs,
                           c.kernel_h, c.kernel_w, p[0],     p[1],    p[2],       p[3],         p[4]};
    device().announce(sizes);
    conv_route_ = ConvRoute::of(form_, sizes, a_, in_order());
    if (conv_route_) plan_ = choose_dnn(device(), layers_key(), conv_route_->problem);
    if (!plan_) return false;
    workspace_at_ = reserve_scratch(plan_->call->workspace_bytes());
    if (conv_route_->products) place_in_scratch(conv_route_->products);
    return true;
  }
  std::string layers_key() const { return key() + " epilogue " + conv_route_->epilogue; }

  bool add_layers() override {
    if (!plan_) return false;
    add(dnn_step(device(), name(), *plan_, conv_route_->operands).step, {}, {{kLibraryWorkspace, workspace_at_}});
    if (conv_route_->products) add_values(name() + " results", conv_route_->pass, form_.domain);
    return true;
  }

  int layer_steps() const override { return !plan_ ? 0 : conv_route_->products ? 2 : 1; }

  void measure_layers(const std::function<TunedStep()>& own) override {
    if (!conv_route_) return;
    tune_dnn(device(), layers_key(), conv_route_->problem, {b_, in_order()}, own, [this](const DnnPlan& plan) {
      TunedStep out = dnn_step(device(), name(), plan, conv_route_->operands);
      if (conv_route_->products) out.after.push_back(plain_step(device(), name(), conv_route_->pass, form_.domain));
      return out;
    });
  }

  device::ConvSizes sizes_;
  Expr a_, b_;
  std::optional<ConvRoute> conv_route_;  // where a library could do it
  std::optional<DnnPlan> plan_;          // by which it does
  int64_t workspace_at_ = 0;
};

const RegisterBody kRegisteredProducts[] = {{"gemm", &LaunchBodies::body<GemmKernel>},
                                            {"conv2d", &LaunchBodies::body<ConvKernel>}};

}  // namespace
}  // namespace tenon::cuda
