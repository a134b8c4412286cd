// The core for f32: fused multiply-adds on the CUDA cores. Products of few rows have a kernel of their own; all other
// products, and convolutions, use mma's tiles.
#include <algorithm>
#include <any>

#include "tenon/backend/cuda/products/mma_tile.h"
#include "tenon/backend/cuda/products/product_kernel.h"
#include "tenon/backend/cuda/products/tile_estimate.h"

namespace tenon::cuda {
namespace {

/// A tile, its rate relative to the first one's, and the blocks that take as long on a multiprocessor as one alone: a
/// block has too few warps to hide the latency of shared memory. Measured on an H100.
struct PlainTile {
  MmaTileShape tile;
  double rate;
  int together;
};
constexpr PlainTile kPlainTiles[] = {
    {{128, 64, 2, 2, 128, 3}, 1.0, 2}, {{64, 64, 2, 2, 64, 4}, 0.93, 2}, {{32, 32, 1, 2, 128, 4}, 0.85, 4}};

/// device::SimtTile as a value, without what follows from the product.
struct SimtTileShape {
  int rows = 16, columns = 8;

  static constexpr int kMaxRows = 16, kMaxBlocksOfRows = 4, kStagesBytes = 96 << 10;
  // Ranges that have columns, one per warp.
  static int warps(const device::GemmSizes& g) { return g.range ? static_cast<int>(div_up(g.k, g.range)) : 1; }
  int stage_bytes(int lanes) const { return (rows + lanes * columns) * 64; }
  // Enough in flight to hide the memory's latency, and a second block on a multiprocessor.
  int stages(const device::GemmSizes& g, int lanes) const {
    constexpr int kMost = 6;
    return std::clamp(kStagesBytes / (warps(g) * stage_bytes(lanes)), 2, kMost);
  }
  int shared_bytes(const device::GemmSizes& g, int lanes) const {
    return warps(g) * std::max(stages(g, lanes) * stage_bytes(lanes), lanes * rows * columns * 4);
  }
  std::string type(const device::GemmSizes& g, int lanes) const {
    std::string out = "SimtTile<" + std::to_string(rows);
    for (int x : {columns, lanes, warps(g), stages(g, lanes)}) out += ", " + std::to_string(x);
    return out + ">";
  }
};

class SimtCore : public ProductCore {
 public:
  std::string_view name() const override { return "simt"; }
  bool stands_in() const override { return true; }

  // K is never split among blocks: a row's result must not depend on how many others there are.
  std::vector<TileChoice> choices(const ProductShape& p, const DeviceFacts& facts) const override {
    if (p.element_bytes != 4) return {};
    if (p.kind == ProductKind::Gemm && p.batch == 1 && !p.counts &&
        p.m <= SimtTileShape::kMaxRows * SimtTileShape::kMaxBlocksOfRows)
      return {{.tile = few_rows(p, facts)}};
    std::vector<TileChoice> out;
    for (const auto& [tile, rate, together] : kPlainTiles) {
      if (tile.n / tile.warps_n % (8 * p.lanes) || tile.shared_bytes() > facts.shared_bytes) continue;
      const int64_t tiles = div_up(p.m, tile.m) * div_up(p.n / p.lanes, tile.n / p.lanes) * p.batch;
      out.push_back(
          {.tile = tile,
           .time = time_of(tiles,
                           {int64_t{tile.m} * tile.n * together, div_up(p.k * 4, tile.row_bytes), tile.row_bytes, rate},
                           1, facts.multiprocessors * together)});
    }
    return out;
  }
  std::string text(const TileChoice&) const override { return {}; }
  std::optional<TileChoice> parse(const std::string&) const override { return std::nullopt; }  // it is never measured

  CallNeeds needs(const ProductKernel& kernel, const TileChoice& choice) const override {
    const ProductSizes sizes = kernel.sizes(choice);
    const int lanes = kernel.product().lanes;
    const auto* gemm = std::get_if<device::GemmSizes>(&sizes);
    if (const auto* few = std::any_cast<SimtTileShape>(&choice.tile)) {
      CallNeeds needs;
      needs.shape = {.grid_x = div_up(gemm->n / lanes, few->columns),
                     .grid_y = div_up(gemm->m, few->rows),
                     .threads = 32 * few->warps(*gemm),
                     .shared_bytes = few->shared_bytes(*gemm, lanes)};
      return needs;
    }
    const auto& tile = choice.as<MmaTileShape>();
    return gemm ? gemm_needs(tile, *gemm, lanes) : conv_needs(tile, std::get<device::ConvSizes>(sizes), lanes);
  }
  TunedCall call(ProductKernel& kernel, const TileChoice& choice) const override {
    KernelParts source;
    const ProductSizes sizes = kernel.sizes(choice);
    Params params = kernel.begin(sizes);
    source.functors = kernel.epilogue_source(params, source.headers, 4);
    source.functors.insert(0, kernel.rows_source(params, source.headers));
    if (const auto* few = std::any_cast<SimtTileShape>(&choice.tile))
      return kernel.tile_call(choice, std::move(source),
                              few->type(std::get<device::GemmSizes>(sizes), kernel.product().lanes), 1, params);
    return kernel.tile_call(choice, std::move(source), choice.as<MmaTileShape>().type(), 1, params, {}, "mma");
  }
  CountedRows counted_rows(const TileChoice& choice, int lanes) const override {
    const auto* tile = std::any_cast<MmaTileShape>(&choice.tile);
    return tile && tile->permutes_b(lanes) ? CountedRows{tile->m, tile->m / tile->warps_m} : CountedRows();
  }

 private:
  // Narrow products have too few columns for all multiprocessors, unless blocks are narrow too.
  static SimtTileShape few_rows(const ProductShape& p, const DeviceFacts& facts) {
    SimtTileShape tile{.rows = p.m > 8 ? 16 : p.m > 4 ? 8 : 4, .columns = 8};
    const int64_t columns = p.n / p.lanes;
    const auto fits = [&](const SimtTileShape& t) {
      return 2 * device::kSumRanges * t.stage_bytes(p.lanes) <= SimtTileShape::kStagesBytes;
    };
    while (tile.columns < 32 && div_up(columns, 2 * tile.columns) >= facts.multiprocessors &&
           fits({tile.rows, 2 * tile.columns}))
      tile.columns *= 2;
    return tile;
  }
};

const RegisterCore<SimtCore> kRegisteredSimt;

}  // namespace
}  // namespace tenon::cuda
