// The gemm and conv2d skeletons: tensor cores for f16 and bf16, plain f32 arithmetic elsewhere.
#include <algorithm>
#include <cstddef>

#include "tenon/backend/cuda/anchor_kernel.h"
#include "tenon/backend/cuda/core_launch.h"
#include "tenon/backend/cuda/tile_choice.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {
namespace {

// Both kinds. A kind supplies its sizes (with a member `split`), operands and boxes; this chooses the core and makes
// the step.
class ProductKernel : public AnchorKernel {
 protected:
  using AnchorKernel::AnchorKernel;

  ProductShape shape(int64_t m, int64_t n, int64_t k, int64_t batch) const {
    return {m, n, k, batch, lanes(), size_of(arithmetic_)};
  }
  /// Takes the faster of the cores that can do it. `wgmma`: tiles along m, or nothing if its boxes do not fit.
  void choose(const ProductShape& p, const std::function<int64_t(const WgmmaTileShape&)>& wgmma) {
    product_ = p;
    choice_.core = Core::Simt;
    if (!tensor_cores()) return;
    if (core_allowed(Core::Mma)) choice_ = choose_mma(p, device().facts());
    if (wgmma && device().facts().arch == "sm_90a" && core_allowed(Core::Wgmma)) {
      const TileChoice other = choose_wgmma(p, device().facts(), wgmma);
      if (other.core == Core::Wgmma && (choice_.core == Core::Simt || other.time < choice_.time)) choice_ = other;
    }
    if (choice_.core == Core::Simt) choice_ = choose_mma(p, device().facts());  // what is asked for alone cannot do it
  }
  /// Memory for the parts of K to meet in; `launch` of the chosen tile.
  void reserve_split(const CoreLaunch& launch) {
    if (choice_.splits == 1) return;
    workspace_at_ = reserve_scratch(launch.workspace_bytes);
    counters_at_ = reserve_weights(launch.counters * 4);
  }

  template <class Sizes>
  void add_simt(KernelText text, const std::string& kernel, const char* type, const Sizes& sizes, const Expr& a,
                const Expr& b, int b_split) {
    Params params;
    params.set_sizes(type, sizes);
    text.functors = operand_text("A", a, a.shape().rank() - 1, params, text.headers) +
                    operand_text("B", b, b_split, params, text.headers) + epilogue_text(params, text.headers, 4);
    text.headers = "#include \"tenon/device/simt.h\"\n" + text.headers;
    text.kernel = "KERNEL(kSimtThreads, 1, Params, p) { " + kernel + "_simt<A, B, Epilogue>(p); }\n";
    LaunchShape launch;
    launch.grid_x = static_cast<unsigned>(div_up(product_.n / lanes(), 64));
    launch.grid_y = static_cast<unsigned>(div_up(product_.m, 64));
    launch.grid_z = static_cast<unsigned>(product_.batch);
    launch.threads = 256;
    launch.shared_bytes = static_cast<unsigned>((1 + lanes()) * 16 * 68 * 4);
    add(Step(device(), text, params, launch));
  }

  template <class Sizes>
  void add_mma(KernelText text, const std::string& kernel, const char* type, Sizes sizes, const Expr& a, const Expr& b,
               int b_split, const CoreLaunch& launch) {
    Params params;
    sizes.split.splits = choice_.splits;
    if (counted_in_core()) sizes.count = counted_in_core()->sizes;
    params.set_sizes(type, sizes);
    text.functors = operand_text("A", a, a.shape().rank() - 1, params, text.headers) +
                    operand_text("B", b, b_split, params, text.headers) + epilogue_text(params, text.headers, 8);
    add_core<Sizes>(std::move(text), kernel + "_mma", choice_.mma.type(), params, launch);
  }

  /// `box_a`, `box_b`: of one tensor of the operand, from its address, its columns and the elements between its rows.
  template <class Sizes>
  void add_wgmma(KernelText text, const std::string& kernel, const char* type, Sizes sizes, const Expr& a,
                 const MakeRowsBox& box_a, const Expr& b, const MakeRowsBox& box_b, const CoreLaunch& launch) {
    Params params;
    sizes.split.splits = choice_.splits;
    if (counted_in_core()) sizes.count = counted_in_core()->sizes;
    params.set_sizes(type, sizes);
    text.functors =
        map_text("A", a, params, box_a) + map_text("B", b, params, box_b) + epilogue_text(params, text.headers, 8);
    add_core<Sizes>(std::move(text), kernel + "_wgmma", choice_.wgmma.type(), params, launch);
  }

  const TileChoice& choice() const { return choice_; }

  bool can_count() const { return choice_.core != Core::Simt && product_.batch == 1 && lanes() == form_.lanes; }
  /// Tiles of rows in plain order, for a value seen as [samples, inner, channels].
  CountTiles tiles_of_rows(const Shape& seen) const {
    if (!can_count()) return {};
    const bool mma = choice_.core == Core::Mma;
    const int64_t rows = mma ? choice_.mma.m : choice_.wgmma.m;
    const int64_t of_warp = mma ? choice_.mma.m / choice_.mma.warps_m : kWgmmaWarpRows;
    return {slots_of_rows(seen[0], seen[1], rows, of_warp), (mma ? choice_.mma.n : choice_.wgmma.n) / lanes()};
  }

 private:
  static constexpr int64_t kWgmmaWarpRows = 16;

  template <class Sizes>
  void add_core(KernelText text, const std::string& kernel, const std::string& tile, const Params& params,
                const CoreLaunch& launch) {
    text.name += " " + tile;
    text.headers = "#include \"tenon/device/" + kernel + ".h\"\n" + text.headers;
    text.functors += "using Tile = " + tile + ";\n";
    text.kernel = "KERNEL(Tile::kThreads, 1, Params, p) { " + kernel + "<Tile, A, B, Epilogue>(p); }\n";
    std::vector<SizesPointer> counters;
    std::vector<std::pair<size_t, int64_t>> scratch;
    if (choice_.splits > 1) {
      const size_t split = offsetof(Sizes, split);
      counters.push_back({split + offsetof(device::SplitK, counters), kept(counters_at_)});
      scratch.emplace_back(split + offsetof(device::SplitK, workspace), workspace_at_);
    }
    if (const Counted* c = counted_in_core()) {
      const size_t count = offsetof(Sizes, count);
      counters.push_back({count + offsetof(device::CountSizes, counters), kept(c->counters_at)});
      scratch.emplace_back(count + offsetof(device::CountSizes, partials), c->partials_at);
    }
    add(Step(device(), text, params, launch.shape), counters, scratch);
  }

  int64_t workspace_at_ = 0, counters_at_ = 0;
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
    b_ = padded_operand(1);
    sizes_.k = checked_int(a_.shape()[-1]);
    const auto tiles_m = [this](const WgmmaTileShape& tile) { return div_up(sizes_.m, tile.m); };
    const bool boxes = tensor_cores() && rows_in_boxes(a_) && rows_in_boxes(b_);
    choose(shape(sizes_.m, sizes_.n, sizes_.k, sizes_.batch),
           boxes ? tiles_m : std::function<int64_t(const WgmmaTileShape&)>());
    reserve_split(core_launch());
    reserve_statistics([this](const Shape& seen) { return tiles_of_rows(seen); });
  }

 private:
  CoreLaunch core_launch() const {
    device::GemmSizes sizes = sizes_;
    sizes.split.splits = choice().splits;
    if (choice().core == Core::Mma) return gemm_launch(choice().mma, sizes, lanes());
    if (choice().core == Core::Simt) return {};
    return gemm_launch(choice().wgmma, sizes, lanes(), device().facts().multiprocessors);
  }

  void make_steps() override {
    make_operands();
    if (form_.domain.numel() == 0) return;
    KernelText text;
    text.name = name();
    const int b_split = b_.shape().rank() - 1;
    if (choice().core == Core::Simt) return add_simt(text, "gemm", "GemmSizes", sizes_, a_, b_, b_split);
    if (choice().core == Core::Mma) return add_mma(text, "gemm", "GemmSizes", sizes_, a_, b_, b_split, core_launch());
    const auto box = [this](int64_t rows, int box_rows) {
      return [this, rows, box_rows](void* address, int64_t columns, int64_t stride) {
        TensorBox out = rows_box(address, static_cast<int>(size_of(arithmetic_)), rows, columns, box_rows);
        out.stride_bytes[1] = stride * size_of(arithmetic_);
        return out;
      };
    };
    const WgmmaTileShape& tile = choice().wgmma;
    add_wgmma(text, "gemm", "GemmSizes", sizes_, a_, box(int64_t{sizes_.m} * sizes_.batch, tile.m), b_,
              box(int64_t{sizes_.n} * sizes_.batch, tile.n / lanes()), core_launch());
  }

  device::GemmSizes sizes_;
  Expr a_, b_;
};

class ConvKernel : public ProductKernel {
 public:
  ConvKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : ProductKernel(std::move(device), launch, std::move(form)) {
    const Shape w = form_.holes[1].shape();
    a_ = padded_operand(0);
    const int64_t channels = a_.shape()[-1];
    if (tensor_cores())
      b_ = operand(1, {w[0], w[2], w[3], channels}, [&](const Expr& leaf) {
        return permute(slice(leaf, -1, 0, w[1]), {0, 3, 1, 2});
      });
    else
      b_ = padded_operand(1);
    fill_sizes(channels);
    const int bytes = static_cast<int>(size_of(arithmetic_));
    const auto tiles_m = [this](const WgmmaTileShape& tile) {
      device::ConvSizes c = sizes_;
      choose_box(tile, c);
      return div_up(c.out_width, c.box_width) * div_up(c.out_height, c.box_height) * div_up(c.batch, c.box_images);
    };
    const bool boxes = tensor_cores() && conv_fits_boxes(sizes_, bytes) && rows_in_boxes(a_) &&
                       (sizes_.stride == 1 || dense(a_)) && dense(b_);
    choose(shape(int64_t{sizes_.batch} * sizes_.out_height * sizes_.out_width, w[0], w[2] * w[3] * channels, 1),
           boxes ? tiles_m : std::function<int64_t(const WgmmaTileShape&)>());
    if (choice().core == Core::Wgmma) choose_box(choice().wgmma, sizes_);
    reserve_split(core_launch());
    reserve_statistics([this](const Shape& seen) {
      CountTiles tiles = tiles_of_rows(seen);
      const bool images = seen[0] == sizes_.batch && seen[1] == int64_t{sizes_.out_height} * sizes_.out_width;
      if (choice().core == Core::Wgmma) tiles.slots = images && can_count() ? slots_of_boxes(sizes_) : 0;
      return tiles;
    });
  }

 private:
  void fill_sizes(int64_t channels) {
    const Shape x = form_.holes[0].shape(), w = form_.holes[1].shape(), y = form_.anchor.shape();
    const std::vector<int64_t>& p = form_.anchor->attrs.ints;  // stride, top, left, bottom, right
    sizes_.batch = checked_int(x[0]);
    sizes_.height = checked_int(x[1]);
    sizes_.width = checked_int(x[2]);
    sizes_.channels = checked_int(channels);
    sizes_.out_height = checked_int(y[1]);
    sizes_.out_width = checked_int(y[2]);
    sizes_.outputs = checked_int(w[0]);
    sizes_.kernel_h = checked_int(w[2]);
    sizes_.kernel_w = checked_int(w[3]);
    sizes_.stride = checked_int(p[0]);
    sizes_.pad_top = checked_int(p[1]);
    sizes_.pad_left = checked_int(p[2]);
  }

  CoreLaunch core_launch() const {
    device::ConvSizes sizes = sizes_;
    sizes.split.splits = choice().splits;
    if (choice().core == Core::Mma) return conv_launch(choice().mma, sizes, lanes());
    if (choice().core == Core::Simt) return {};
    return conv_launch(choice().wgmma, sizes, lanes(), device().facts().multiprocessors);
  }

  void make_steps() override {
    make_operands();
    if (form_.domain.numel() == 0) return;
    KernelText text;
    text.name = name();
    if (choice().core == Core::Simt) return add_simt(text, "conv", "ConvSizes", sizes_, a_, b_, 1);
    if (choice().core == Core::Mma) return add_mma(text, "conv", "ConvSizes", sizes_, a_, b_, 1, core_launch());
    const int bytes = static_cast<int>(size_of(arithmetic_)), rows = choice().wgmma.n / lanes();
    const auto pixels = [this, bytes](void* address, int64_t columns, int64_t stride) {
      TensorBox box = pixels_box(address, bytes, sizes_, checked_int(stride));
      if (sizes_.stride == 1) box.extent[0] = columns;
      return box;
    };
    const auto taps = [this, bytes, rows](void* address, int64_t, int64_t) {
      return taps_box(address, bytes, sizes_, rows);
    };
    add_wgmma(text, "conv", "ConvSizes", sizes_, a_, pixels, b_, taps, core_launch());
  }

  device::ConvSizes sizes_;
  Expr a_, b_;
};

const RegisterBody kRegistered[] = {{"gemm", &LaunchBodies::body<GemmKernel>},
                                    {"conv2d", &LaunchBodies::body<ConvKernel>}};

}  // namespace
}  // namespace tenon::cuda
