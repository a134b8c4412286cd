// The core with wgmma, on sm_90a: TMA loads boxes of the operands.
#include "tenon/backend/cuda/products/product_kernel.h"
#include "tenon/backend/cuda/products/tile_estimate.h"
#include "tenon/backend/cuda/products/wgmma_tile.h"

namespace tenon::cuda {
namespace {

// Operands are read once per tile, so rates fall with tile size. Blocks of a cluster wait for each other, which for
// most products costs more than the shared operand saves.
constexpr RatedTile<WgmmaTileShape> kWgmmaTiles[] = {
    {{256, 128, 4, 1}, 1.8},    {{256, 96, 5, 1}, 1.7},     {{128, 256, 4, 1}, 1.8},    {{128, 224, 4, 1}, 1.75},
    {{128, 192, 5, 1}, 1.7},    {{128, 160, 6, 1}, 1.6},    {{128, 128, 6, 1}, 1.5},    {{128, 96, 7, 1}, 1.35},
    {{128, 64, 8, 1}, 1.1},     {{64, 256, 5, 1}, 1.3},     {{64, 160, 7, 1}, 1.1},     {{64, 128, 8, 1}, 1.0},
    {{64, 160, 3, 2}, 0.7},     {{64, 128, 4, 2}, 0.65},    {{64, 96, 5, 2}, 0.55},     {{64, 64, 8, 1}, 0.8},
    {{64, 64, 6, 2}, 0.5},      {{64, 32, 8, 2}, 0.35},     {{256, 128, 4, 1, 2}, 1.7}, {{128, 256, 4, 1, 2}, 1.7},
    {{128, 192, 5, 1, 2}, 1.6}, {{128, 128, 6, 1, 2}, 1.4}, {{128, 64, 8, 1, 2}, 1.05}, {{64, 256, 5, 1, 2}, 1.2},
    {{64, 128, 8, 1, 2}, 0.95}, {{64, 128, 4, 2, 2}, 0.6},  {{64, 64, 6, 2, 2}, 0.45},
};
// A tile that a cluster of blocks may share, for products of few rows. Larger tiles, or two blocks per multiprocessor,
// find places side by side too late.
constexpr RatedTile<WgmmaTileShape> kSharedTile = {{64, 64, 8, 1}, 0.8};

class WgmmaCore : public ProductCore {
 public:
  std::string_view name() const override { return "wgmma"; }

  std::vector<TileChoice> choices(const ProductShape& p, const DeviceFacts& facts) const override {
    std::vector<TileChoice> out;
    if (!p.boxed_tiles_m || facts.arch != "sm_90a") return out;
    for (const auto& [tile, rate] : kWgmmaTiles) consider(tile, rate, p, facts, out);
    for (const int blocks : {2, 4, 8}) {
      WgmmaTileShape shared = kSharedTile.tile;
      shared.along_k = blocks;
      consider(shared, kSharedTile.rate, p, facts, out);
    }
    return out;
  }

  std::string text(const TileChoice& c) const override {
    const auto& t = c.as<WgmmaTileShape>();
    if (t.along_k > 1) return tile_text(kSharedText, {t.m, t.n, t.stages, t.resident, t.along_k});
    return tile_text(kText, {t.m, t.n, t.stages, t.resident, t.cluster, c.splits});
  }
  std::optional<TileChoice> parse(const std::string& text) const override {
    WgmmaTileShape t;
    TileChoice c;
    if (read_tile(text, kSharedText, {&t.m, &t.n, &t.stages, &t.resident, &t.along_k}))
      c.splits = t.along_k;
    else if (!read_tile(text, kText, {&t.m, &t.n, &t.stages, &t.resident, &t.cluster, &c.splits}))
      return std::nullopt;
    c.tile = t;
    return c;
  }

  CallNeeds needs(const ProductKernel& kernel, const TileChoice& choice) const override {
    const auto& tile = choice.as<WgmmaTileShape>();
    const int multiprocessors = kernel.device().facts().multiprocessors, lanes = kernel.product().lanes;
    const ProductSizes sizes = kernel.sizes(choice, tile.m);
    if (const auto* gemm = std::get_if<device::GemmSizes>(&sizes))
      return gemm_needs(tile, *gemm, lanes, multiprocessors);
    return conv_needs(tile, std::get<device::ConvSizes>(sizes), lanes, multiprocessors);
  }

  TunedCall call(ProductKernel& kernel, const TileChoice& choice) const override {
    const auto& tile = choice.as<WgmmaTileShape>();
    KernelParts source;
    const ProductSizes sizes = kernel.sizes(choice, tile.m);
    Params params = kernel.begin(sizes);
    const Boxes box = std::visit([&](const auto& s) { return boxes(kernel, tile, s); }, sizes);
    source.functors = kernel.b_source() + kernel.epilogue_source(params, source.headers, 8);
    const auto boxes_of = [&](bool in_columns) {
      return !in_columns ? BoxesOf::Rows : kernel.batched() ? BoxesOf::StackedColumns : BoxesOf::Columns;
    };
    source.functors.insert(0, kernel.map_source("Rows", kernel.b(), boxes_of(kernel.b_in_columns()), params, box.b));
    source.functors.insert(0, kernel.map_source("A", kernel.a(), boxes_of(kernel.a_in_columns()), params, box.a));
    std::string arguments;
    if (kernel.branch()) {
      source.functors += branch_of(kernel, tile, params, source.headers);
      arguments = ", Branch";
    }
    if (kernel.norm()) {
      source.functors += kernel.norm_source(params, source.headers);
      arguments = ", NoBranch, Norm";
    }
    if (kernel.a_in_columns() || kernel.b_in_columns())
      source.headers.insert(0, "#include \"tenon/backend/cuda/device/vocabulary_columns.h\"\n");
    return kernel.tile_call(choice, std::move(source), tile.type(), tile.resident, params, arguments);
  }
  bool adds_branch() const override { return true; }
  bool applies_norm() const override { return true; }

  // If a warp has two parts of the tile, the whole tile must lie in one sample.
  CountedRows counted_rows(const TileChoice& choice, int) const override {
    const int m = choice.as<WgmmaTileShape>().m;
    return {.tile = m, .warp = m > 128 ? m : 16, .boxes = true};
  }

 private:
  static constexpr int kColumnsBlock = 64;  // of K, for a transposed operand
  static constexpr std::string_view kText = "#x# stages # resident # cluster # splits #";
  static constexpr std::string_view kSharedText = "#x# stages # resident # blocks along k #";

  // Adds all choices with this tile.
  static void consider(WgmmaTileShape tile, double rate, const ProductShape& p, const DeviceFacts& facts,
                       std::vector<TileChoice>& out) {
    if (!takes(tile, p, facts)) return;
    tile.in_ranges = p.in_ranges;
    const int64_t tiles = div_up(p.boxed_tiles_m(tile.m), tile.cluster) * tile.cluster *
                          div_up(p.n / p.lanes, tile.n / p.lanes) * p.batch;
    const int64_t k_tiles = p.taps * div_up(p.k / p.taps * p.element_bytes, 128);  // a box has one tap
    // Clusters find places on ten of eleven multiprocessors, and must all run at once to pay off.
    const bool shared = tile.along_k > 1;
    const int places = shared ? facts.multiprocessors / 11 * 10 : facts.multiprocessors * tile.resident;
    for_splits(k_tiles, tiles, places, [&](int splits) {
      // A branch would be added more than once, and a norm is of whole rows.
      if (splits > 1 && (p.branches || p.behind_norm || (p.in_ranges && !shared))) return;
      if (shared && (splits != tile.along_k || tiles * splits > places)) return;
      const double time = time_of(tiles * splits, {int64_t{tile.m} * tile.n, div_up(k_tiles, splits), 128, rate},
                                  splits, places, shared);
      out.push_back({.tile = tile, .splits = splits, .time = time});
    });
  }

  static bool takes(const WgmmaTileShape& tile, const ProductShape& p, const DeviceFacts& facts) {
    if (!tile.permutes_b(p.lanes) || tile.shared_bytes() > facts.shared_bytes) return false;
    if (p.b_in_columns && (tile.n % 64 != 0 || tile.cluster > 1)) return false;
    // Per-stage sums take registers, and so do several lanes with a row scale each in a 256-column epilogue.
    if (p.element_bytes == 1 && (!tile.adds_stages() || (p.lanes > 1 && tile.n == 256))) return false;
    // With two blocks per multiprocessor a thread has 128 registers: too few for wide sums plus counts or factors.
    if ((p.counts || p.branches) && tile.resident > 1 && tile.n >= 128) return false;
    if (p.branches && tile.m == 64 && tile.n == 256) return false;
    if (p.in_ranges && !tile.adds_ranges()) return false;
    if (tile.along_k > 1 && (p.lanes > 1 || p.branches)) return false;
    if (p.behind_norm && tile.cluster > 1) return false;
    if (tile.along_k > 1 && p.in_ranges && tile.along_k != device::kSumRanges / 2) return false;
    return tile.cluster == 1 || ((p.lanes == 1 || p.lanes == tile.cluster) && p.boxed_tiles_m(tile.m) >= tile.cluster);
  }

  // Makes boxes of `box_rows` rows of an operand that has `rows` rows.
  static ProductKernel::MakeRowsBox rows_of(int bytes, int64_t rows, int box_rows) {
    return [=](void* address, int64_t columns, int64_t stride) {
      return rows_box(address, bytes, rows, columns, stride * bytes, box_rows);
    };
  }

  static std::string branch_of(const ProductKernel& kernel, const WgmmaTileShape& tile, Params& params,
                               std::string& headers) {
    const auto box = [](const Expr& operand, int box_rows) {
      return rows_of(static_cast<int>(size_of(operand.dtype())), operand.shape().rows(), box_rows);
    };
    const ProductKernel::Branch& b = *kernel.branch();
    return kernel.branch_source(params, headers, box(b.a, tile.m), box(b.b, tile.rows_of_b(kernel.product().lanes)));
  }

  struct Boxes {
    ProductKernel::MakeRowsBox a, b;
  };
  static Boxes boxes(const ProductKernel& kernel, const WgmmaTileShape& tile, const device::GemmSizes&) {
    const int bytes = kernel.element_bytes();
    // Rows of B in memory. For a transposed B these are K; if it is stored permuted, its boxes put K back in order.
    const int64_t k = kernel.product().k, rows_b = kernel.b_in_columns() ? k : kernel.b().shape().rows();
    const auto box_in_order = [=](void* address, int64_t columns, int64_t stride) {
      return permuting_box(address, bytes, rows_b, columns, stride * bytes);
    };
    const int box_b = kernel.b_in_columns() ? kColumnsBlock : tile.rows_of_b(kernel.product().lanes);
    return {
        kernel.a_in_columns() ? rows_of(bytes, k, kColumnsBlock) : rows_of(bytes, kernel.a().shape().rows(), tile.m),
        kernel.b_permuted() != kernel.b_in_columns() ? rows_of(bytes, rows_b, box_b) : box_in_order};
  }
  static Boxes boxes(const ProductKernel& kernel, const WgmmaTileShape& tile, const device::ConvSizes& sizes) {
    const int bytes = kernel.element_bytes();
    const auto pixels = [sizes, bytes](void* address, int64_t columns, int64_t stride) {
      TensorBox box = pixels_box(address, bytes, sizes, checked_int(stride));
      if (sizes.stride == 1) box.extent[0] = columns;
      return box;
    };
    const auto taps = [sizes, bytes, rows = kernel.b().shape()[0], permuted = kernel.b_permuted(),
                       box_rows = tile.rows_of_b(kernel.product().lanes)](void* address, int64_t, int64_t) {
      return permuted ? taps_box(address, bytes, sizes, rows, box_rows)
                      : permuting_taps_box(address, bytes, sizes, rows);
    };
    return {pixels, taps};
  }
};

const RegisterCore<WgmmaCore> kRegisteredWgmma;

}  // namespace
}  // namespace tenon::cuda
