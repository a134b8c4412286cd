// The core with mma and cp.async, on every supported GPU: operands in memory with any strides.
#include "tenon/backend/cuda/products/mma_tile.h"
#include "tenon/backend/cuda/products/product_kernel.h"
#include "tenon/backend/cuda/products/tile_estimate.h"

namespace tenon::cuda {
namespace {

// Operands are read once per tile, so rates fall with tile size.
constexpr RatedTile<MmaTileShape> kMmaTiles[] = {
    {{128, 128, 2, 4, 64, 4}, 1.0}, {{128, 64, 2, 2, 64, 4}, 0.85}, {{64, 128, 2, 2, 64, 4}, 0.85},
    {{64, 64, 2, 2, 128, 4}, 0.7},  {{32, 64, 2, 2, 128, 4}, 0.45},
};

/// In units of time_of: unlike skinny and wgmma, it loads nothing before the preceding kernel has ended.
constexpr double kStart = 16;

class MmaCore : public ProductCore {
 public:
  std::string_view name() const override { return "mma"; }

  // e4m3 only on sm_89: on sm_90a it would have to be converted, and wgmma takes all e4m3 products there.
  std::vector<TileChoice> choices(const ProductShape& p, const DeviceFacts& facts) const override {
    std::vector<TileChoice> out;
    if (!p.in_memory || p.element_bytes == 4 || (p.element_bytes == 1 && facts.arch == "sm_90a")) return out;
    if (p.in_ranges && p.boxed_tiles_m && wgmma_allowed(facts)) return out;
    for (const auto& [tile, rate] : kMmaTiles) {
      if (tile.n / tile.warps_n % (8 * p.lanes) || tile.shared_bytes() > facts.shared_bytes) continue;
      const int64_t tiles = div_up(p.m, tile.m) * div_up(p.n / p.lanes, tile.n / p.lanes) * p.batch;
      const int64_t k_tiles = div_up(p.k * p.element_bytes, tile.row_bytes);
      for_splits(k_tiles, tiles, facts.multiprocessors, [&, &tile = tile, &rate = rate](int splits) {
        const double time =
            time_of(tiles * splits, {int64_t{tile.m} * tile.n, div_up(k_tiles, splits), tile.row_bytes, rate}, splits,
                    facts.multiprocessors);
        out.push_back({.tile = tile, .splits = splits, .time = kStart + time});
      });
    }
    return out;
  }
  bool stands_in() const override { return true; }

  std::string text(const TileChoice& c) const override {
    const auto& t = c.as<MmaTileShape>();
    return tile_text(kText, {t.m, t.n, t.warps_m, t.warps_n, t.row_bytes, t.stages, c.splits});
  }
  std::optional<TileChoice> parse(const std::string& text) const override {
    MmaTileShape t;
    TileChoice c;
    if (!read_tile(text, kText, {&t.m, &t.n, &t.warps_m, &t.warps_n, &t.row_bytes, &t.stages, &c.splits}))
      return std::nullopt;
    c.tile = t;
    return c;
  }

  CallNeeds needs(const ProductKernel& kernel, const TileChoice& choice) const override {
    const auto& tile = choice.as<MmaTileShape>();
    const ProductSizes sizes = kernel.sizes(choice);
    if (const auto* gemm = std::get_if<device::GemmSizes>(&sizes))
      return gemm_needs(tile, *gemm, kernel.product().lanes);
    return conv_needs(tile, std::get<device::ConvSizes>(sizes), kernel.product().lanes);
  }
  TunedCall call(ProductKernel& kernel, const TileChoice& choice) const override {
    KernelParts source;
    Params params = kernel.begin(kernel.sizes(choice));
    source.functors = kernel.epilogue_source(params, source.headers, 8);
    source.functors.insert(0, kernel.rows_source(params, source.headers));
    return kernel.tile_call(choice, std::move(source), choice.as<MmaTileShape>().type(), 1, params);
  }
  CountedRows counted_rows(const TileChoice& choice, int lanes) const override {
    const auto& tile = choice.as<MmaTileShape>();
    return tile.permutes_b(lanes) ? CountedRows{tile.m, tile.m / tile.warps_m} : CountedRows();
  }

 private:
  static constexpr std::string_view kText = "#x# warps #x# bytes # stages # splits #";
};

const RegisterCore<MmaCore> kRegisteredMma;

}  // namespace
}  // namespace tenon::cuda
