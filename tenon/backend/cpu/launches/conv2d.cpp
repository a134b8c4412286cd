// The conv2d skeleton: pixels of x times packed filters, tiles of pixels to the results. A 1x1 convolution with stride
// 1 is a matrix product over pixels.
#include "tenon/backend/cpu/launches/anchor_kernel.h"
#include "tenon/backend/cpu/tile/winograd.h"
#include "tenon/expr/ops.h"

namespace tenon::cpu {
namespace {

ConvShape conv_shape_of(const Form& form) {
  const Shape &x = form.holes[0].shape(), &w = form.holes[1].shape();
  const std::vector<int64_t>& p = form.anchor->attrs.ints;
  ConvShape s;
  s.n = x[0];
  s.h = x[1];
  s.w = x[2];
  s.c = x[3];
  s.o = w[0];
  s.kh = static_cast<int>(w[2]);
  s.kw = static_cast<int>(w[3]);
  s.stride = static_cast<int>(p[0]);
  s.pad_t = static_cast<int>(p[1]);
  s.pad_l = static_cast<int>(p[2]);
  s.pad_b = static_cast<int>(p[3]);
  s.pad_r = static_cast<int>(p[4]);
  return s;
}

bool is_product(const ConvShape& s) {
  return s.kh == 1 && s.kw == 1 && s.stride == 1 && s.pad_t == 0 && s.pad_l == 0 && s.pad_b == 0 && s.pad_r == 0;
}

// Measured: below about a thousand pixels, reading the larger weights costs what the products save. Counted per image,
// so that an image gives the same result alone and in a batch.
constexpr int64_t kWinogradPixels = 1024, kWinogradChannels = 16;

// The type in which a Winograd convolution stores its transformed filters, or nothing if the direct sum is faster. In
// bf16 mode, f16 filters with f32 sums have less error than bf16 products; only matrix tiles are faster.
std::optional<DType> winograd_filters(const ConvShape& s, DType tiles, const Expr& weight, const TileOps& ops) {
  if (!winograd_legal(s) || weight->rate != Rate::Constant) return {};
  if (s.out_h() * s.out_w() < kWinogradPixels || s.c < kWinogradChannels || s.o < kWinogradChannels) return {};
  if (tiles == DType::F32) return DType::F32;
  return ops.isa == Isa::Amx ? std::nullopt : std::optional(DType::F16);
}

class Conv2dKernel : public AnchorKernel {
 public:
  Conv2dKernel(std::shared_ptr<Engine> engine, const Launch& launch, Form form)
      : AnchorKernel(std::move(engine), launch, std::move(form)),
        shape_(conv_shape_of(form_)),
        product_(is_product(shape_)),
        winograd_(winograd_filters(shape_, tiles_, form_.holes[1], engine_->tile)) {
    WeightGeometry geometry;
    geometry.shape = product_ ? linear_shape(tiles_, shape_.o / form_.lanes, shape_.c, form_.lanes)
                              : conv_shape(tiles_, shape_.filters());
    geometry.convolution = true;
    geometry.winograd = winograd_;
    geometry.channels = shape_.c;
    geometry.kh = shape_.kh;
    geometry.kw = shape_.kw;
    compile_weight(form_.holes[1], geometry);
    x_ = std::make_unique<RowHole>(form_.holes[0], tiles_, leaves_, engine_->vec);
    if (x_->tape()) use(*x_->tape());
    compile_epilogue(kMaxTileCols);
    driver_at_ = reserve_scratch(driver_scratch(geometry.shape));
    seal();
  }

  std::string describe() const override {
    return (winograd_ ? std::string("winograd ") : "") + summary({{"x", x_->describe()}});
  }

 private:
  int64_t driver_scratch(const PackedShape& packed) const {
    if (product_) return gemm_scratch_bytes(engine_->tile, packed, shape_.out_pixels(), 1, threads());
    return winograd_ ? winograd_scratch_bytes(shape_, threads()) : conv_scratch_bytes(shape_, tiles_, threads());
  }

  void compute(std::byte* scratch) override {
    const PackedB w = {geometry_.shape, packed_weight(scratch)};
    const auto out = [this](const OutTile& t) { write({t.row0, t.rows, t.col0, t.cols}, t.acc, t.ld, t.thread); };
    product_ ? multiply(w, out, scratch) : convolve(w, out, scratch);
  }

  void multiply(const PackedB& w, TileFn out, std::byte* scratch) {
    GemmArgs args;
    args.m = shape_.out_pixels();
    args.b = w;
    args.out = out;
    args.a.data = x_->data(bases());
    args.a.type = x_->type();
    args.a.ld = x_->ld();
    const auto fill = [this](int64_t row0, int64_t rows, float* dst, int64_t ld, int thread) {
      x_->fill(row0, rows, dst, ld, bases(), workspace(thread));
    };
    if (!args.a.data) args.a.rows = fill;
    gemm(engine_->pool, engine_->tile, args, scratch + driver_at_);
  }

  void convolve(const PackedB& w, TileFn out, std::byte* scratch) {
    PixelSource x;
    x.data = x_->data(bases());
    x.type = x_->type();
    x.ld = x_->ld();
    const auto fill = [this](int64_t n, int64_t y, int64_t x0, int64_t x1, float* dst, int64_t ld, int thread) {
      x_->fill((n * shape_.h + y) * shape_.w + x0, x1 - x0, dst, ld, bases(), workspace(thread));
    };
    if (!x.data) x.pixels = fill;
    if (winograd_)
      winograd2d(engine_->pool, engine_->tile, {shape_, x, w.data, *winograd_, out}, scratch + driver_at_);
    else
      conv2d(engine_->pool, engine_->tile, {shape_, x, w, out}, scratch + driver_at_);
  }

  ConvShape shape_;
  bool product_;
  std::optional<DType> winograd_;
  std::unique_ptr<RowHole> x_;
  int64_t driver_at_ = 0;
};

const RegisterBody kRegisteredConv2d("conv2d", &LaunchBodies::body<Conv2dKernel>);

}  // namespace
}  // namespace tenon::cpu
