// The core for products of few rows, with mma. It may compute these rows before the product, or row factors that are
// applied after it.
#include <algorithm>
#include <array>

#include "tenon/backend/cuda/codegen/program_source.h"
#include "tenon/backend/cuda/products/product_kernel.h"
#include "tenon/backend/cuda/products/skinny_tile.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {
namespace {

// Estimated time for up to 8 rows, comparable between choices of one product. Terms, in order: enough warps load at
// once; each warp has enough K tiles; columns per warp; warps of a block share the rows computed before the product; if
// not all blocks are resident at once to prefetch their weights, more columns per block help. If K is short, what
// counts is that blocks find places beside those of the launch before: two groups by 16 warps are fastest.
double time_of_8_rows(const SkinnyTileShape& tile, const ProductShape& p, const DeviceFacts& facts) {
  constexpr double kWanted = 16;  // warps per multiprocessor
  const double warps = static_cast<double>(p.n / p.lanes) / (8 * tile.groups) * tile.warps / facts.multiprocessors;
  const double k_tiles = static_cast<double>(p.k) / 32 / tile.warps;
  const bool few_k_tiles = p.lanes == 1 && tile.warps == 16 && k_tiles <= 4;
  if (few_k_tiles && tile.groups == 2 && div_up(p.n, 16) <= 2 * facts.multiprocessors) return 0;
  return 1 / std::min(warps / kWanted, 1.0) + 1 / k_tiles + 0.05 * tile.groups + 2.0 / tile.warps +
         (warps > SkinnyTileShape::warps_there(8) ? 1.0 / tile.groups : 0.0);
}

// Microseconds for 9 to 16 rows: waves of blocks, each of which takes as long as its warps' K tiles and its bytes.
// Fitted to tokens of three models on an H200 (docs/notes/cuda-kernels.md, "A token's tiles").
double time_of_16_rows(const SkinnyTileShape& tile, const ProductShape& p, const DeviceFacts& facts) {
  constexpr double kWave = 1, kEach = 0.5, kBytes = 110e3;  // per wave; per K tile of a warp; per microsecond
  const int64_t blocks = div_up(p.n / p.lanes, 8 * tile.groups);
  const int64_t waves = div_up(blocks * tile.warps, SkinnyTileShape::warps_there(16) * facts.multiprocessors);
  const double k_tiles = static_cast<double>(p.k) / 32 / tile.warps;
  const auto bytes = static_cast<double>(8 * tile.groups * p.lanes * p.k * p.element_bytes);
  return static_cast<double>(waves) * (kWave + kEach * k_tiles + bytes / kBytes);
}

// With more than kMaxRowsInFront rows other cores may be faster: time in units of time_of (tile_estimate.h). Every
// block reads all rows of A beside its own of B. Fitted to 32 and 64 rows of Qwen2.5-0.5B's products on an H200.
double time_of_more_rows(const SkinnyTileShape& tile, const ProductShape& p, const DeviceFacts& facts) {
  constexpr double kLatency = 6, kTogether = 3500, kAlone = 500;  // bytes per multiprocessor; per warp of one block
  const double blocks = static_cast<double>(div_up(p.n / p.lanes, 8 * tile.groups));
  const int64_t rows = SkinnyTileShape::rows(static_cast<int>(p.m)) + 8 * tile.groups * p.lanes;
  const double bytes = static_cast<double>(rows * p.k * p.element_bytes);
  return kLatency + std::max(blocks * bytes / (kTogether * facts.multiprocessors), bytes / (kAlone * tile.warps));
}

// Registers per thread for a row that is computed before the product, of the 128 that kWarpsInFront leave; weights in
// flight take some, and so does what one reduction leaves to the next.
constexpr int kHeldInFront = 96, kHeldInStages = 80;

// How a choice runs in a kernel's launch.
SkinnyCall call_of(const ProductKernel& kernel, const TileChoice& choice) {
  return {kernel.product(), kernel.device().facts(), choice.as<SkinnyTileShape>()};
}

// "Reduction": what is reduced over operand A alongside the product.
void add_reduction(const RowFactor& f, DType unit, Params& params, KernelParts& source) {
  const Expr x = input(f.rows.graph(), acc_name(0), DType::F32, f.rows.shape());
  const ProgramOutput part{reduced_part(f, x), {}, unit};
  ProgramSource program(std::array{part}, {f.rows.shape(), f.rows.shape().rank() - 1}, params, 8);
  source.functors += program.functor("Part", 1);
  const NodeStruct& node = node_struct(f.reduction->type);
  source.headers += program.includes() + "#include \"" + node.header + "\"\n";
  source.functors += std::string("using Reduction = ReducesBeside<Part, nodes::") + node.name + ">;\n";
}

class SkinnyCore : public ProductCore {
 public:
  std::string_view name() const override { return "skinny"; }

  // Few rows take as long as loading their weights, whatever the tile, and up to kMaxRowsInFront are faster here than
  // on any other core. The summation order is the same for all tiles (GemmSizes::range).
  std::vector<TileChoice> choices(const ProductShape& p, const DeviceFacts& facts) const override {
    std::vector<TileChoice> out;
    if (!p.few_rows) return out;
    const int rows = SkinnyTileShape::rows(static_cast<int>(p.m));
    if (rows > SkinnyTileShape::kMaxRowsInFront) return choices_of_more_rows(p, facts);
    constexpr double kPreferred = 1e-3;
    for (const int warps : {8, 16})
      for (const int groups : {1, 2, 3, 4}) {
        const SkinnyTileShape tile{groups, warps};
        if (groups == 3 && (rows <= 8 || p.lanes == 1)) continue;  // never the fastest where measured
        if (groups * p.lanes > (rows > 8 ? 6 : 4) || !SkinnyCall(p, facts, tile).fits()) continue;
        const double time = rows > 8 ? time_of_16_rows(tile, p, facts) : time_of_8_rows(tile, p, facts);
        out.push_back({.tile = tile, .time = kPreferred * time});
      }
    return out;
  }

  std::string text(const TileChoice& c) const override {
    const auto& tile = c.as<SkinnyTileShape>();
    return tile_text(kText, {tile.groups, tile.warps});
  }
  std::optional<TileChoice> parse(const std::string& text) const override {
    SkinnyTileShape tile;
    return read_tile(text, kText, {&tile.groups, &tile.warps}) ? std::optional(TileChoice{.tile = tile}) : std::nullopt;
  }

  CallNeeds needs(const ProductKernel& kernel, const TileChoice& choice) const override {
    return call_of(kernel, choice).needs();
  }
  TunedCall call(ProductKernel& kernel, const TileChoice& choice) const override {
    KernelParts source;
    const SkinnyCall made = call_of(kernel, choice);
    Params params = kernel.begin(kernel.sizes(choice));
    std::string arguments;
    if (const auto& front = kernel.front()) {
      params.reserve_shared(made.tile_bytes());
      params.keep_shared(front->rows);
      const ProgramOutput rows{front->value, front->leaf, kernel.unit()};
      const Shape& shape = front->leaf.shape();
      ProgramSource program(std::array{rows}, {shape, shape.rank() - 1}, params, 8);
      const int fragments = static_cast<int>(std::max<int64_t>(div_up(kernel.product().k, 32 * program.width()), 1));
      program.hold_at_most((program.stages() > 2 ? kHeldInStages : kHeldInFront) / fragments);
      source.functors = program.functor("Front");
      source.headers += program.includes();
      arguments = ", RowsInFront<Front, " + std::to_string(fragments) + ">";
    }
    if (kernel.factor()) {
      add_reduction(*kernel.factor(), kernel.unit(), params, source);
      arguments = ", NoFront, Reduction";
    }
    const RowFactor* const factor = kernel.factor() ? &*kernel.factor() : nullptr;
    const std::string epilogue = kernel.epilogue_source(params, source.headers, 2, true, factor);
    source.functors += kernel.rows_source(params, source.headers) + epilogue;
    return kernel.tile_call(choice, std::move(source), made.type(), made.resident(), params, arguments);
  }

 private:
  static constexpr std::string_view kText = "groups # warps #";

  static std::vector<TileChoice> choices_of_more_rows(const ProductShape& p, const DeviceFacts& facts) {
    std::vector<TileChoice> out;
    if (p.counts) return out;
    for (const int warps : {8, 16})
      for (const int groups : {1, 2, 3, 4}) {
        const SkinnyTileShape tile{groups, warps};
        if (groups * p.lanes > (warps > 8 ? 2 : 6)) continue;  // registers
        if (tile.shared_bytes(static_cast<int>(p.m), p.lanes, static_cast<int>(p.k)) > facts.shared_bytes) continue;
        out.push_back({.tile = tile, .time = time_of_more_rows(tile, p, facts)});
      }
    return out;
  }
};

const RegisterCore<SkinnyCore> kRegisteredSkinny;

}  // namespace
}  // namespace tenon::cuda
