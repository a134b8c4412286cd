// The core for f32: plain arithmetic, any operands, computed where they are read.
#include "tenon/backend/cuda/products/product_kernel.h"

namespace tenon::cuda {
namespace {

class SimtCore : public ProductCore {
 public:
  std::string_view name() const override { return "simt"; }
  std::vector<TileChoice> choices(const ProductShape& p, const DeviceFacts&) const override {
    return std::vector<TileChoice>(p.element_bytes == 4 ? 1 : 0);
  }
  std::string text(const TileChoice&) const override { return {}; }
  std::optional<TileChoice> parse(const std::string&) const override { return std::nullopt; }  // it is never measured
  bool stands_in() const override { return true; }

  CoreLaunch launch(const ProductKernel& kernel, const TileChoice&) const override {
    const ProductShape& p = kernel.product();
    CoreLaunch launch;
    launch.shape.grid_x = static_cast<unsigned>(div_up(p.n / p.lanes, 64));
    launch.shape.grid_y = static_cast<unsigned>(div_up(p.m, 64));
    launch.shape.grid_z = static_cast<unsigned>(p.batch);
    launch.shape.threads = 256;
    launch.shape.shared_bytes = static_cast<unsigned>((1 + p.lanes) * 16 * 68 * 4);
    return launch;
  }

  TunedCall call(ProductKernel& kernel, const TileChoice& choice) const override {
    KernelParts text;
    Params params = kernel.begin(kernel.sizes(choice));
    const Expr &a = kernel.a(), &b = kernel.b();
    text.functors = kernel.epilogue_source(params, text.headers, 4);
    text.functors.insert(0, kernel.operand_source("B", b, kernel.b_split(), params, text.headers));
    text.functors.insert(0, kernel.operand_source("A", a, a.shape().rank() - 1, params, text.headers));
    text.headers = "#include \"tenon/backend/cuda/device/simt.h\"\n" + text.headers;
    text.kernel = "KERNEL(kSimtThreads, 1, Params, p) { " + kernel.kind_name() + "_simt<A, B, Epilogue>(p); }\n";
    return kernel.finish(std::move(text), params, launch(kernel, choice));
  }
};

const RegisterCore<SimtCore> kRegisteredSimt;

}  // namespace
}  // namespace tenon::cuda
