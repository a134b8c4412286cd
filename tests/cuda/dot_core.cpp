// A core of products that is not in the tree. It takes kernels of f16 and bf16 whose K is eight times a prime that no
// other test uses, and reports a long time because it is slow.
#include "tenon/backend/cuda/products/product_kernel.h"

namespace tenon::cuda {
namespace {

struct DotTileShape {
  int threads = 64;
};

class DotCore : public ProductCore {
 public:
  std::string_view name() const override { return "dot"; }

  std::vector<TileChoice> choices(const ProductShape& p, const DeviceFacts&) const override {
    std::vector<TileChoice> out;
    if (p.kind != ProductKind::Gemm || !p.in_memory || p.element_bytes != 2 || p.k != 8 * 127) return out;
    for (const int threads : {64, 32}) out.push_back({.tile = DotTileShape{threads}, .time = 1e9 / threads});
    return out;
  }
  std::string text(const TileChoice& c) const override { return tile_text(kText, {c.as<DotTileShape>().threads}); }
  std::optional<TileChoice> parse(const std::string& text) const override {
    DotTileShape tile;
    return read_tile(text, kText, {&tile.threads}) ? std::optional(TileChoice{.tile = tile}) : std::nullopt;
  }

  CallNeeds needs(const ProductKernel& kernel, const TileChoice& choice) const override {
    const auto sizes = std::get<device::GemmSizes>(kernel.sizes(choice));
    const int threads = choice.as<DotTileShape>().threads;
    CallNeeds needs;
    needs.shape.grid_x = div_up(int64_t{sizes.m} * sizes.n, threads);
    needs.shape.grid_z = sizes.batch;
    needs.shape.threads = threads;
    return needs;
  }
  TunedCall call(ProductKernel& kernel, const TileChoice& choice) const override {
    KernelParts source;
    Params params = kernel.begin(kernel.sizes(choice));
    source.functors = kernel.epilogue_source(params, source.headers, 2);
    source.functors.insert(0, kernel.rows_source(params, source.headers));
    const std::string tile = "DotTile<" + std::to_string(choice.as<DotTileShape>().threads) + ">";
    return kernel.tile_call(choice, std::move(source), tile, 1, params);
  }

 private:
  static constexpr std::string_view kText = "threads #";
};

const RegisterCore<DotCore> kRegisteredDot;

}  // namespace
}  // namespace tenon::cuda
