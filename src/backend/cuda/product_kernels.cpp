// The gemm and conv2d skeletons: tensor cores for f16 and bf16, plain f32 arithmetic elsewhere.
#include <algorithm>

#include "tenon/backend/cuda/anchor_kernel.h"
#include "tenon/backend/cuda/core_launch.h"
#include "tenon/backend/cuda/tile_choice.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {
namespace {

int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Both kinds: operands A and B, split K, and the grid.
class ProductKernel : public AnchorKernel {
 protected:
  using AnchorKernel::AnchorKernel;

  /// Chooses tile and splits of an m x n x k product, and reserves what the splits need.
  void choose(int64_t m, int64_t n, int64_t k, int64_t batch) {
    m_ = m;
    n_ = n;
    batch_ = batch;
    if (!tensor_cores()) return;
    choice_ = choose_tile({m, n, k, batch, lanes(), size_of(arithmetic_)}, device().facts());
    const CoreLaunch launch =
        mma_launch(choice_.tile, checked_int(m), checked_int(n), lanes(), checked_int(batch), choice_.splits);
    if (choice_.splits == 1) return;
    workspace_at_ = reserve_scratch(launch.workspace_bytes);
    counters_at_ = reserve_weights(launch.counters * 4);
  }

  /// The step of `kernel` ("gemm" or "conv"); Sizes has a member `split`.
  template <class Sizes>
  void add_product(const std::string& kernel, const char* sizes_type, Sizes sizes, const Expr& a, const Expr& b,
                   int b_split) {
    Params params;
    if (tensor_cores()) sizes.split.splits = choice_.splits;
    params.set_sizes(sizes_type, sizes);
    KernelText text;
    text.name = name();
    text.functors = operand_text("A", a, a.shape().rank() - 1, params, text.headers) +
                    operand_text("B", b, b_split, params, text.headers) +
                    epilogue_text(params, text.headers, tensor_cores() ? 8 : 4);
    if (!tensor_cores()) {
      text.headers = "#include \"tenon/device/simt.h\"\n" + text.headers;
      text.kernel = "KERNEL(kSimtThreads, 1, Params, p) { " + kernel + "_simt<A, B, Epilogue>(p); }\n";
      LaunchShape shape;
      shape.grid_x = static_cast<unsigned>(div_up(n_ / lanes(), 64));
      shape.grid_y = static_cast<unsigned>(div_up(m_, 64));
      shape.grid_z = static_cast<unsigned>(batch_);
      shape.threads = 256;
      shape.shared_bytes = static_cast<unsigned>((1 + lanes()) * 16 * 68 * 4);
      return add(Step(device(), text, params, shape));
    }
    text.name += " " + choice_.tile.type();
    text.headers = "#include \"tenon/device/" + kernel + "_mma.h\"\n" + text.headers;
    text.functors += "using Tile = " + choice_.tile.type() + ";\n";
    text.kernel = "KERNEL(Tile::kThreads, 1, Params, p) { " + kernel + "_mma<Tile, A, B, Epilogue>(p); }\n";
    const CoreLaunch launch =
        mma_launch(choice_.tile, checked_int(m_), checked_int(n_), lanes(), checked_int(batch_), choice_.splits);
    if (choice_.splits == 1) return add(Step(device(), text, params, launch.shape));
    const size_t split = offsetof(Sizes, split);
    add(Step(device(), text, params, launch.shape), {{split + offsetof(device::SplitK, counters), kept(counters_at_)}},
        {{split + offsetof(device::SplitK, workspace), workspace_at_}});
  }

 private:
  int64_t m_ = 0, n_ = 0, batch_ = 1, workspace_at_ = 0, counters_at_ = 0;
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
    choose(sizes_.m, sizes_.n, sizes_.k, sizes_.batch);
    reserve_statistics();
  }

 private:
  void make_steps() override {
    make_operands();
    if (form_.domain.numel() > 0) add_product("gemm", "GemmSizes", sizes_, a_, b_, b_.shape().rank() - 1);
  }
  device::GemmSizes sizes_;
  Expr a_, b_;
};

class ConvKernel : public ProductKernel {
 public:
  ConvKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : ProductKernel(std::move(device), launch, std::move(form)) {
    const Shape x = form_.holes[0].shape(), w = form_.holes[1].shape(), y = form_.anchor.shape();
    const std::vector<int64_t>& p = form_.anchor->attrs.ints;  // stride, top, left, bottom, right
    a_ = padded_operand(0);
    const int64_t channels = a_.shape()[-1];
    if (tensor_cores())
      b_ = operand(1, {w[0], w[2], w[3], channels}, [&](const Expr& leaf) {
        return permute(slice(leaf, -1, 0, w[1]), {0, 3, 1, 2});
      });
    else
      b_ = padded_operand(1);
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
    choose(y[0] * y[1] * y[2], w[0], w[2] * w[3] * channels, 1);
    reserve_statistics();
  }

 private:
  void make_steps() override {
    make_operands();
    if (form_.domain.numel() > 0) add_product("conv", "ConvSizes", sizes_, a_, b_, 1);
  }
  device::ConvSizes sizes_;
  Expr a_, b_;
};

const RegisterBody kRegistered[] = {{"gemm", &body<GemmKernel>}, {"conv2d", &body<ConvKernel>}};

}  // namespace
}  // namespace tenon::cuda
