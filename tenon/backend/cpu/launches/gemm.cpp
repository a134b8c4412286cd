// The gemm skeleton: rows of a times packed b, tiles to the results.
#include "tenon/backend/cpu/launches/anchor_kernel.h"
#include "tenon/expr/ops.h"

namespace tenon::cpu {
namespace {

class GemmKernel : public AnchorKernel {
 public:
  GemmKernel(std::shared_ptr<Engine> engine, const Launch& launch, Form form)
      : AnchorKernel(std::move(engine), launch, std::move(form)) {
    const Shape &x = form_.holes[0].shape(), &w = form_.holes[1].shape();
    if (nodes::Linear::batched(x, w)) {
      rows_ = x[-2];
      batch_ = x.rows() / std::max<int64_t>(rows_, 1);
    } else {
      rows_ = x.rows();
    }
    WeightGeometry geometry;
    geometry.shape = linear_shape(tiles_, w[-2] / form_.lanes, w[-1], form_.lanes);
    const DType w_type = form_.holes[1].dtype();
    // Operands packed anew in every run are packed as bf16: bytes would only have to be widened again.
    const bool bytes = w_type == DType::E4M3 || w_type == DType::I8;
    if (tiles_ == DType::BF16 && bytes && of_weights_only(form_.holes[1])) geometry.shape.bytes_of = w_type;
    geometry.batch = batch_;
    compile_weight(form_.holes[1], geometry);
    a_ = std::make_unique<RowHole>(form_.holes[0], tiles_, leaves_, engine_->vec);
    if (a_->tape()) use(*a_->tape());
    compile_epilogue(kMaxTileCols);
    gemm_at_ = reserve_scratch(
        gemm_scratch_bytes(engine_->tile, geometry_.shape, rows_, batch_, threads(), a_->rows_at_once()));
    seal();
  }

  std::string describe() const override {
    if (geometry_.shape.on_the_fly) return summary({{"a", a_->describe()}, {"b", "packed on the fly"}});
    return summary({{"a", a_->describe()}});
  }

 private:
  void compute(std::byte* scratch) override {
    GemmArgs args;
    args.m = rows_;
    args.batch = batch_;
    args.b = {geometry_.shape, packed_weight(scratch)};
    const auto panels = [this](const PanelRange& range, std::byte* dst) { pack_panels(range, dst); };
    args.panels = panels;
    args.b_batch_stride = batch_ > 1 ? geometry_.batch_bytes() : 0;
    args.a.data = a_->data(bases());
    args.a.type = a_->type();
    args.a.ld = a_->ld();
    const auto fill = [this](int64_t row0, int64_t rows, float* dst, int64_t ld, int thread) {
      a_->fill(row0, rows, dst, ld, bases(), workspace(thread));
    };
    if (!args.a.data) args.a.rows = fill;
    args.a.rows_at_once = a_->rows_at_once();
    const auto out = [this](const OutTile& t) { write({t.row0, t.rows, t.col0, t.cols}, t.acc, t.ld, t.thread); };
    args.out = out;
    gemm(engine_->pool, engine_->tile, args, scratch + gemm_at_);
  }

  std::unique_ptr<RowHole> a_;
  int64_t rows_ = 0, batch_ = 1, gemm_at_ = 0;
};

const RegisterBody kRegisteredGemm("gemm", &LaunchBodies::body<GemmKernel>);

}  // namespace
}  // namespace tenon::cpu
