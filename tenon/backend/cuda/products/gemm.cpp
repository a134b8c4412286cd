// The gemm skeleton: operands, route and core of a product.
#include "tenon/backend/cuda/products/gemm_kernel.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {

GemmKernel::GemmKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
    : ProductKernel(std::move(device), launch, std::move(form)) {
  const Shape x = form_.holes[0].shape(), w = form_.holes[1].shape();
  const bool batched = nodes::Linear::batched(x, w);
  sizes_.m = checked_int(batched ? x[-2] : x.rows());
  sizes_.n = checked_int(w[-2]);
  sizes_.batch = checked_int(batched && sizes_.m ? x.rows() / sizes_.m : 1);
  batched_ = batched;
  const DeviceFacts& facts = this->device().facts();
  const int64_t vector = vector_width(unit_);
  const bool few_rows = takes_few_rows(form_, unit_, facts);
  a_in_columns_ = takes_columns(form_, 0, unit_, facts);
  b_in_columns_ = takes_columns(form_, 1, unit_, facts);
  const Expr weights = weights_in_columns(form_, unit_, facts);
  if (const std::optional<CentredNorm> norm = norm_behind(form_, unit_, facts))
    a_ = behind_norm(*norm);
  else if (a_in_columns_)
    read_beside(a_ = form_.holes[0]);
  else
    a_ = few_rows && computes_rows(form_, unit_, facts) ? front_operand(0) : padded_operand(0);
  sizes_.k = checked_int(a_.shape()[-1]);
  sizes_.range = sum_range(sizes_.k);
  if (b_in_columns_)
    read_beside(b_ = form_.holes[1]);
  else if (weights)
    b_ = column_operand(weights);
  else if (batched)
    b_ = padded_operand(1);
  else
    b_ = weight_operand({w[0], div_up(sizes_.k, vector) * vector},
                        [&](const Expr& leaf) { return slice(leaf, -1, 0, w[1]); });
  if (form_.anchor.is<nodes::BranchedLinear>()) set_branch();
  const bool in_ranges =
      facts.one_order && size_of(unit_) == 2 && !batched && !branch() && !a_in_columns_ && !b_in_columns_;
  if (tensor_cores() && !branch() && !computes_rows_in_front() && !a_in_columns_ && !b_in_columns_ &&
      !facts.batch_invariant() && !in_ranges)
    route_ = MatmulRoute::of(form_, a_, batched ? b_ : in_order(), sizes_.batch);
  // The sizes for which core and tile are chosen: each row of a plain matrix counts as a sample. In f32 no result
  // depends on them.
  const int64_t there = std::max<int64_t>(x[0], 1),
                samples = tensor_cores() ? this->device().facts().samples_to_choose_for(there) : there,
                m = batched || x.rank() < 2 ? sizes_.m : (x.rank() > 2 ? sizes_.m / there : 1) * samples,
                batch = batched ? sizes_.batch / there * samples : sizes_.batch;
  ProductShape product{.m = m,
                       .n = sizes_.n,
                       .k = sizes_.k,
                       .batch = batch,
                       .few_rows = few_rows && !a_in_columns_ && !b_in_columns_,
                       .in_ranges = in_ranges};
  product.key = "gemm " + by_x({checked_int(m), sizes_.n, sizes_.k}) + " batch " + std::to_string(batch);
  if (tensor_cores() && (norm() || !computes_rows_in_front()) && (a_in_columns_ || rows_in_boxes(a_, unit_)) &&
      (b_in_columns_ || rows_in_boxes(b_, unit_)) && (permuted_ || b_in_columns_ || sizes_.n % (8 * lanes()) == 0))
    product.boxed_tiles_m = [m](int rows) { return div_up(m, rows); };
  choose(std::move(product));
  reserve_statistics([this](const Shape& seen) { return tiles_of_rows(seen); });
}

const RegisterBody kRegisteredGemm("gemm", &LaunchBodies::body<GemmKernel>);

}  // namespace tenon::cuda
