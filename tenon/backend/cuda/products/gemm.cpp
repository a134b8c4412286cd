// The gemm skeleton: tensor cores for f16, bf16 and e4m3, plain f32 arithmetic elsewhere.
#include "tenon/backend/cuda/products/product_kernel.h"

namespace tenon::cuda {
namespace {

class GemmKernel : public ProductKernel {
 public:
  GemmKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : ProductKernel(std::move(device), launch, std::move(form)) {
    const Shape x = form_.holes[0].shape(), w = form_.holes[1].shape();
    const bool batched = nodes::Linear::batched(x, w);
    sizes_.m = checked_int(batched ? x[-2] : x.rows());
    sizes_.n = checked_int(w[-2]);
    sizes_.batch = checked_int(batched && sizes_.m ? x.rows() / sizes_.m : 1);
    const bool few_rows = takes_few_rows(form_, unit_, this->device().facts());
    a_ = few_rows && computes_rows(form_, unit_, this->device().facts()) ? front_operand(0) : padded_operand(0);
    sizes_.k = checked_int(a_.shape()[-1]);
    if (batched)
      b_ = padded_operand(1);
    else
      b_ = weight_operand({w[0], sizes_.k}, [&](const Expr& leaf) { return slice(leaf, -1, 0, w[1]); });
    if (tensor_cores() && !front() && !this->device().facts().batch_invariant())
      route_ = MatmulRoute::of(form_, a_, batched ? b_ : in_order(), sizes_.batch);
    // What core and tile are chosen for: of a matrix alone each row counts as a sample. f32 has one core.
    const int64_t there = std::max<int64_t>(x[0], 1),
                  samples = tensor_cores() ? this->device().facts().samples_to_choose_for(there) : there,
                  m = batched || x.rank() < 2 ? sizes_.m : (x.rank() > 2 ? sizes_.m / there : 1) * samples,
                  batch = batched ? sizes_.batch / there * samples : sizes_.batch;
    const auto tiles_m = [m](const WgmmaTileShape& tile) { return div_up(m, tile.m); };
    const bool boxes = tensor_cores() && !front() && rows_in_boxes(a_, unit_) && rows_in_boxes(b_, unit_) &&
                       (in_runs_ || sizes_.n % (8 * lanes()) == 0);
    choose(m, sizes_.n, sizes_.k, batch,
           "gemm " + by_x({checked_int(m), sizes_.n, sizes_.k}) + " batch " + std::to_string(batch),
           boxes ? tiles_m : std::function<int64_t(const WgmmaTileShape&)>(), {.mma = !front(), .skinny = few_rows});
    reserve_statistics([this](const Shape& seen) { return tiles_of_rows(seen); });
  }

 private:
  CoreLaunch core_launch(const TileChoice& choice) const override {
    device::GemmSizes sizes = sizes_;
    sizes.split.splits = choice.splits;
    if (choice.core == Core::Mma) return gemm_launch(choice.mma, sizes, lanes());
    if (choice.core == Core::Simt) return {};
    if (choice.core == Core::Skinny) return skinny_launch(choice, sizes);
    return gemm_launch(choice.wgmma, sizes, lanes(), device().facts().multiprocessors);
  }
  const Expr& constant() const override { return b_; }

  TunedCall call(const TileChoice& choice) override {
    const int b_split = b_.shape().rank() - 1;
    if (choice.core == Core::Simt) return simt_call("gemm", "GemmSizes", sizes_, a_, b_, b_split);
    if (choice.core == Core::Mma) return mma_call(choice, "gemm", "GemmSizes", sizes_, a_, b_, b_split);
    if (choice.core == Core::Skinny) return skinny_call(choice, sizes_, a_, b_);
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
    return wgmma_call(choice, "gemm", "GemmSizes", sizes_, a_, box(a_.shape().rows(), choice.wgmma.m), b_,
                      in_runs_ ? MakeRowsBox(box(rows_b, choice.wgmma.rows_of_b(lanes()))) : box_in_order);
  }

  device::GemmSizes sizes_;
  Expr a_, b_;
};

const RegisterBody kRegisteredGemm("gemm", &LaunchBodies::body<GemmKernel>);

}  // namespace
}  // namespace tenon::cuda
