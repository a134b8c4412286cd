// The conv2d skeleton: tensor cores for f16 and bf16, CUDA cores for f32.
#include <bit>

#include "tenon/backend/cuda/convolutions/conv_route.h"
#include "tenon/backend/cuda/libraries/dnn_choice.h"
#include "tenon/backend/cuda/products/product_kernel.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/view_facts.h"

namespace tenon::cuda {
namespace {

class Conv2dKernel : public ProductKernel {
 public:
  Conv2dKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : ProductKernel(std::move(device), launch, std::move(form)) {
    const Shape w = form_.holes[1].shape();
    if (doubles()) {
      form_.holes[0] = form_.holes[0]->in[0];
      sizes_.phases = 2;
    }
    computes_pixels_ = computes_pixels();
    a_ = computes_pixels_ ? computed_pixels() : padded_operand(0);
    const int64_t channels = a_.shape()[-1];
    if (sizes_.phases == 2)
      keep_phases(channels);
    else
      b_ = weight_operand({w[0], w[2], w[3], channels}, [&](const Expr& leaf) {
        return permute(slice(leaf, -1, 0, w[1]), {0, 3, 1, 2});
      });
    fill_sizes(channels);
    const int bytes = static_cast<int>(size_of(unit_));
    const bool boxes = tensor_cores() && !computes_pixels_ && conv_fits_boxes(sizes_, bytes) &&
                       rows_in_boxes(a_, unit_) && (sizes_.stride == 1 || dense(a_)) && dense(b_) &&
                       (permuted_ || w[0] % (8 * lanes()) == 0);
    const device::ConvSizes& c = sizes_;
    const char* input = c.phases > 1                         ? "conv2d of twice "
                        : form_.holes[0].is<nodes::Resize>() ? "conv2d of resized "
                                                             : "conv2d ";
    const int batch = batch_to_choose_for();
    ProductShape product{.kind = ProductKind::Conv2d,
                         .m = int64_t{batch} * c.out_height * c.out_width,
                         .n = int64_t{c.outputs} * c.phases * c.phases,
                         .k = int64_t{c.kernel_h} * c.kernel_w * channels,
                         .taps = int64_t{c.kernel_h} * c.kernel_w,
                         .in_memory = c.phases == 1};
    product.key = input + by_x({batch, c.height, c.width, c.channels}) + " -> " +
                  by_x({c.out_height, c.out_width, c.outputs}) + " by " + by_x({c.kernel_h, c.kernel_w, c.stride});
    if (boxes)
      product.boxed_tiles_m = [this](int rows) {
        const device::ConvSizes boxed = in_boxes(rows);
        return div_up(boxed.out_width, boxed.box_width) * div_up(boxed.out_height, boxed.box_height) *
               div_up(batch_to_choose_for(), boxed.box_images);
      };
    choose(std::move(product));
    reserve_statistics([this](const Shape& seen) {
      const CountedRows rows = counted_rows();
      return rows.boxes ? boxes_to_count(seen, rows) : tiles_of_rows(seen);
    });
  }

 private:
  // True if the input is another image at twice its size, which the wgmma core reads at its original size.
  bool doubles() const {
    const Expr &x = form_.holes[0], &w = form_.holes[1];
    const std::vector<int64_t> same = {1, 1, 1, 1, 1};  // stride, and padding on four sides
    if (!tensor_cores() || !wgmma_allowed(device().facts()) || !x.is<nodes::Resize>()) return false;
    const Shape from = x->in[0].shape();
    if (is_view_chain(x->in[0]) && !rows_in_boxes(x->in[0], unit_)) return false;
    return x.shape()[1] == 2 * from[1] && x.shape()[2] == 2 * from[2] && from[3] * size_of(unit_) % 128 == 0 &&
           w.shape()[0] % 32 == 0 && w.shape()[2] == 3 && w.shape()[3] == 3 && form_.anchor->attrs.ints == same &&
           lanes() == 1 && form_.lanes == 1 && of_weights_only(w) && is_view_chain(without_rounding(w, unit_));
  }

  // True for the few channels of a picture or its latents: padding them to a copy of 16 bytes would take a kernel more.
  bool computes_pixels() const {
    const Expr& hole = form_.holes[0];
    const int vector = vector_width(unit_);
    return size_of(unit_) == 2 && hole.shape()[-1] < vector && hole.shape().numel() > 0 && core_allowed("mma") &&
           !library_asked("cudnn") && is_view_chain(without_rounding(hole, unit_));
  }
  Expr computed_pixels() {
    const Expr value = without_rounding(form_.holes[0], unit_);
    read_beside(value);
    return pad(value, -1, 0, vector_width(unit_) - value.shape()[-1]);
  }

  // The four 2 x 2 filters: taps that meet the same pixel are summed, the last two for an even row, the first two for
  // an odd one. Summed in f32, rounded once.
  void keep_phases(int64_t channels) {
    const Expr& hole = form_.holes[1];
    const Expr w = without_rounding(hole, unit_);
    const bool rounds = w != hole;
    const int64_t outputs = w.shape()[0], inputs = w.shape()[1];
    b_ = input(*form_.graph, "%hole.1", unit_, {4 * outputs, 2, 2, channels});
    permuted_ = true;
    const Expr filters = permuted_rows(b_);
    struct Range {
      int64_t begin, end;
    };
    constexpr Range kTaps[2][2] = {{{0, 1}, {1, 3}}, {{0, 2}, {2, 3}}};
    std::vector<PackedWrite> writes;
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
      writes.push_back({sum, permute(slice(part, -1, 0, inputs), {0, 3, 1, 2})});
    }
    ask_packed(b_, writes);
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
    // A window's first pixel may be as far outside the image as it is padded.
    const auto bits = [](int64_t size, int64_t before, int64_t after) {
      return 1 + std::bit_width(static_cast<uint64_t>(std::max(size + after, before)));
    };
    const int y_bits = static_cast<int>(bits(x[1], p[1], p[3])), x_bits = static_cast<int>(bits(x[2], p[2], p[4]));
    TENON_CHECK(Usage, y_bits + x_bits <= 32, name())
        << "convolves pictures of " << x[2] << "x" << x[1] << ", which are too large to number their pixels in 32 bits";
    sizes_.x_bits = std::clamp(16, x_bits, 32 - y_bits);
  }

  ProductSizes plain_sizes(int box_rows) const override { return box_rows ? in_boxes(box_rows) : sizes_; }
  // Partial sums per sample, if a tile's boxes do not mix samples.
  CountTiles boxes_to_count(const Shape& seen, const CountedRows& rows) const {
    const device::ConvSizes c = in_boxes(rows.tile);
    const int64_t phases = int64_t{c.phases} * c.phases;
    if (seen[0] != c.batch || seen[1] != int64_t{c.out_height} * c.out_width * phases) return {};
    if ((rows.warp > 16 || device().facts().batch_invariant()) && c.box_images > 1) return {};
    return {slots_of_boxes(c) * phases, 0, boxes_are_whole(c, rows.tile)};
  }
  // In f32 no result depends on it.
  int batch_to_choose_for() const {
    return tensor_cores() ? checked_int(device().facts().samples_to_choose_for(sizes_.batch)) : sizes_.batch;
  }
  device::ConvSizes in_boxes(int rows) const {
    device::ConvSizes sizes = sizes_;
    sizes.batch = batch_to_choose_for();
    choose_box(rows, sizes);
    sizes.batch = sizes_.batch;
    return sizes;
  }

  bool choose_layers() override {
    if (!tensor_cores() || sizes_.phases > 1 || computes_pixels_) return false;
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
    add(dnn_call(device(), name(), *plan_, conv_route_->operands).call, {}, {{kLibraryWorkspace, workspace_at_}});
    if (conv_route_->products) add_values(name() + " results", conv_route_->pass, form_.domain);
    return true;
  }

  int layer_calls() const override { return !plan_ ? 0 : conv_route_->products ? 2 : 1; }

  int layer_kernels_beside() const override {
    return dnn_call(device(), name(), *plan_, conv_route_->operands).call.library_kernels() - 1;
  }

  void measure_layers(const std::function<TunedCall()>& own) override {
    if (!conv_route_) return;
    tune_dnn(device(), layers_key(), conv_route_->problem, {b_, in_order()}, own, [this](const DnnPlan& plan) {
      TunedCall out = dnn_call(device(), name(), plan, conv_route_->operands);
      if (conv_route_->products) out.after.push_back(plain_call(device(), name(), conv_route_->pass, form_.domain));
      return out;
    });
  }

  device::ConvSizes sizes_;
  std::optional<ConvRoute> conv_route_;  // if a library could do the launch
  std::optional<DnnPlan> plan_;          // the library's plan, if it does
  int64_t workspace_at_ = 0;
};

const RegisterBody kRegisteredConv2d("conv2d", &LaunchBodies::body<Conv2dKernel>);

}  // namespace
}  // namespace tenon::cuda
