// Machine code of the tensor-core kernels, for every tile that the backend may choose: no spills, the intended
// tensor-core and copy instructions, 16 bytes per access, as many blocks per multiprocessor as planned.
#include <gtest/gtest.h>

#include "tenon/backend/cuda/driver/cubin.h"
#include "tenon/backend/cuda/products/mma_tile.h"
#include "tenon/backend/cuda/products/skinny_tile.h"
#include "tenon/backend/cuda/products/tile_choice.h"
#include "tenon/backend/cuda/products/wgmma_tile.h"
#include "tests/cuda/nvrtc_environment.h"

namespace tenon::cuda::test {
namespace {

// y = product + bias + residual, all of one type.
std::string epilogue_of(const std::string& columns, int width = 8) {
  return "struct Epilogue {\n  static constexpr int kLanes = 1, kWidth = " + std::to_string(width) + R"(;
  using Computed = Frag<float, kWidth>;
  DEV static int64_t at_of(const Params& p, int row, int col) { return static_cast<int64_t>(row) * )" +
         columns + R"( + col; }
  DEV static Computed compute(const Params& p, int row, int col, const Frag<float, kWidth> (&acc)[1]) {
    const int64_t at = at_of(p, row, col);
    const Frag<T, kWidth> bias = load<T, kWidth>(p.bias + col), residual = load<T, kWidth>(p.residual + at);
    Frag<float, kWidth> sum;
    UNROLL for (int i = 0; i < kWidth; ++i) sum.v[i] = acc[0].v[i] + to_float(bias.v[i]) + to_float(residual.v[i]);
    return sum;
  }
  DEV static void store(const Params& p, int row, int col, const Computed& sum) {
    tenon::device::store(p.y + at_of(p, row, col), from_floats<T>(sum));
  }
};
)";
}

std::string head_of(const std::string& core, const std::string& type, const std::string& sizes,
                    const std::string& members) {
  const std::string room = core.starts_with("conv") ? "convolutions/" : "products/";
  return "#include \"tenon/backend/cuda/device/" + room + core +
         ".h\"\nusing namespace tenon::device;\nusing T = " + type + ";\nstruct Params { " + sizes + " sizes; " +
         members + " const T *bias, *residual; T* y; };\n";
}
std::string kernel_of(const std::string& core, const std::string& tile, int blocks) {
  return "using Tile = " + tile + ";\nKERNEL(Tile::kThreads, " + std::to_string(blocks) + ", Params, p) { " + core +
         "<Tile, A, B, Epilogue>(p); }\n";
}
// A dense operand for the mma cores.
std::string rows_of(const std::string& name, const std::string& pointer, const std::string& columns) {
  return "struct " + name +
         " {\n  using T = ::T;\n  static constexpr int kWidth = 16 / sizeof(T);\n  static constexpr bool kPermuted = "
         "true;\n  struct Row { const T* at; };\n" +
         "  DEV static Row row(const Params& p, int r) { return {p." + pointer + " + static_cast<int64_t>(r) * " +
         columns + "}; }\n  DEV static const T* at(const Row& row, int col) { return row.at + col; }\n};\n";
}
std::string map_of(const std::string& name, const std::string& map, bool in_columns = false) {
  return "struct " + name + " { using T = ::T; static constexpr bool kConstant = true, kPermuted = true" +
         (in_columns ? ", kColumns = true" : "") +
         "; DEV static TmaSource source(const Params& p, int col) { return {p." + map + ", col}; } };\n";
}

std::string mma_source(bool conv, const std::string& type, const MmaTileShape& tile, int blocks) {
  const std::string core = conv ? "conv_mma" : "gemm_mma";
  return head_of(core, type, conv ? "ConvSizes" : "GemmSizes", "const T *a, *b;") +
         rows_of("A", "a", conv ? "p.sizes.channels" : "p.sizes.k") +
         rows_of("B", "b", conv ? "(p.sizes.kernel_h * p.sizes.kernel_w * p.sizes.channels)" : "p.sizes.k") +
         epilogue_of(conv ? "p.sizes.outputs" : "p.sizes.n") + kernel_of(core, tile.type(), blocks);
}
std::string wgmma_source(bool conv, const std::string& type, const WgmmaTileShape& tile, int blocks) {
  const std::string core = conv ? "conv_wgmma" : "gemm_wgmma";
  return head_of(core, type, conv ? "ConvSizes" : "GemmSizes", "TensorMap a, b;") + map_of("A", "a") +
         map_of("B", "b") + epilogue_of(conv ? "p.sizes.outputs" : "p.sizes.n") + kernel_of(core, tile.type(), blocks);
}

// One narrow store is expected: the counter where splits are combined.
void check(const std::string& source, const std::string& arch, const KernelExpectations& expected) {
  const KernelBinary compiled = machine_code({"core", source}, arch);
  const CubinKernel kernel = read_cubin_kernel(compiled.cubin, kKernelName);
  for (const std::string& wrong : check_kernel(kernel, compiled.log, expected)) ADD_FAILURE() << arch << ": " << wrong;
  constexpr int kFewBytes = 8;  // when the stack may be used
  EXPECT_LE(kernel.stack_bytes, expected.may_use_stack ? kFewBytes : 0);
}

struct Planned {
  MmaTileShape tile;
  int blocks;
};
const Planned kPlanned[] = {{{128, 128, 2, 2, 64, 4}, 2},
                            {{128, 64, 2, 2, 64, 4}, 2},
                            {{64, 128, 2, 2, 64, 4}, 2},
                            {{64, 64, 2, 2, 128, 3}, 3},
                            {{32, 64, 2, 2, 128, 4}, 4}};

TEST(CoreCode, MmaTiles) {
  SKIP_WITHOUT_NVRTC();
  for (const Planned& planned : kPlanned)
    for (const bool conv : {false, true})
      for (const char* arch : {"sm_89", "sm_90a"}) {
        SCOPED_TRACE(planned.tile.type() + (conv ? " conv " : " gemm ") + arch);
        check(mma_source(conv, "BF16", planned.tile, planned.blocks), arch,
              {.blocks = planned.blocks,
               .contains = {Opcode::Hmma, Opcode::LoadMatrix, Opcode::CopyAsync},
               .wide_loads = 0.9,
               .wide_stores = 0.8});
      }
}

// Every tile for few rows, without spills, and with whole permuted blocks of B.
TEST(CoreCode, SkinnyTiles) {
  SKIP_WITHOUT_NVRTC();
  for (const int m : {1, 16, 32, 64})
    for (const SkinnyTileShape& tile : {SkinnyTileShape{1, 8}, {1, 16}, {2, 8}, {2, 16}, {4, 8}, {4, 16}, {6, 8}}) {
      if (tile.groups > (m > 16 ? tile.warps > 8 ? 2 : 6 : 4)) continue;
      const std::string source = head_of("gemm_skinny", "BF16", "GemmSizes", "const T *a, *b;") +
                                 rows_of("A", "a", "p.sizes.k") + rows_of("Rows", "b", "p.sizes.k") +
                                 "struct B : Rows { static constexpr bool kPermuted = true, kConstant = true; };\n" +
                                 epilogue_of("p.sizes.n", 2) + kernel_of("gemm_skinny", tile.type(m, 1, 4864), 1);
      for (const char* arch : {"sm_89", "sm_90a"}) {
        SCOPED_TRACE(tile.type(m, 1, 4864) + " " + arch);
        check(source, arch, {.blocks = 1, .contains = {Opcode::Hmma}});
      }
    }
}

// Every tile for products whose operands are stored by columns. If a thread has 128 sums, which lanes exchange before
// the epilogue, two unrelated words are kept in memory meanwhile: 3 instructions per whole tile.
TEST(CoreCode, OperandsInColumns) {
  SKIP_WITHOUT_NVRTC();
  ProductShape product{.m = 8192, .n = 8192, .k = 4096, .in_memory = false, .b_in_columns = true};
  product.boxed_tiles_m = [&](int rows) { return div_up(product.m, rows); };
  const auto choices = tile_choices(product, {.name = "", .arch = "sm_90a", .shared_bytes = 232448});
  EXPECT_GE(choices.size(), 8U);
  for (const TileChoice& choice : choices)
    for (const bool both : {true, false}) {
      SCOPED_TRACE(choice.text() + (both ? " both" : " b"));
      const auto& tile = choice.as<WgmmaTileShape>();
      const std::string source = "#include \"tenon/backend/cuda/device/vocabulary_columns.h\"\n" +
                                 head_of("gemm_wgmma", "BF16", "GemmSizes", "TensorMap a, b;") +
                                 map_of("A", "a", both) + map_of("B", "b", true) + epilogue_of("p.sizes.n") +
                                 kernel_of("gemm_wgmma", tile.type(), tile.resident);
      check(source, "sm_90a",
            {.blocks = tile.resident,
             .may_use_stack = tile.m * tile.n >= 256 * 128,
             .contains = {Opcode::Hgmma},
             .lacks = {Opcode::Hmma}});
    }
}

// Every tile for products whose sums are taken by ranges, and no other core if there is this one.
TEST(CoreCode, SumsInRanges) {
  SKIP_WITHOUT_NVRTC();
  ProductShape product{.m = 8192, .n = 8192, .k = 4096, .in_ranges = true};
  product.boxed_tiles_m = [&](int rows) { return div_up(product.m, rows); };
  const auto choices = tile_choices(product, {.name = "", .arch = "sm_90a", .shared_bytes = 232448});
  EXPECT_GE(choices.size(), 5U);
  for (const TileChoice& choice : choices) {
    SCOPED_TRACE(choice.text());
    ASSERT_EQ(choice.core->name(), "wgmma");
    EXPECT_EQ(choice.splits, 1);
    const auto& tile = choice.as<WgmmaTileShape>();
    EXPECT_TRUE(tile.in_ranges);
    check(wgmma_source(false, "BF16", tile, tile.resident), "sm_90a",
          {.blocks = tile.resident,
           .may_use_stack = tile.m * tile.n >= 128 * 128,  // two unrelated words
           .contains = {Opcode::Hgmma},
           .lacks = {Opcode::Hmma}});
  }
}

// Every tile for products of e4m3, using the tensor cores' own instructions for it.
TEST(CoreCode, E4m3IsNativeEverywhere) {
  SKIP_WITHOUT_NVRTC();
  ProductShape product{.m = 8192, .n = 8192, .k = 4096, .element_bytes = 1};
  product.boxed_tiles_m = [&](int rows) { return div_up(product.m, rows); };
  for (const char* arch : {"sm_89", "sm_90a"}) {
    const bool hopper = arch == std::string("sm_90a");
    const auto choices = tile_choices(product, {.name = "", .arch = arch, .shared_bytes = hopper ? 232448 : 101376});
    EXPECT_GE(choices.size(), hopper ? 10u : 5u);
    for (const TileChoice& choice : choices) {
      SCOPED_TRACE(choice.text() + " " + arch);
      const int resident = hopper ? choice.as<WgmmaTileShape>().resident : 1;
      const Opcode native = hopper ? Opcode::Qgmma : Opcode::Qmma;
      check(hopper ? wgmma_source(false, "E4M3", choice.as<WgmmaTileShape>(), resident)
                   : mma_source(false, "E4M3", choice.as<MmaTileShape>(), 1),
            arch, {.blocks = resident, .contains = {native}, .lacks = {Opcode::Hmma, Opcode::Hgmma}});
    }
  }
}

// Every tile for products with a branch: its sums are accessed between two runs of wgmma, and all must stay in
// registers.
TEST(CoreCode, Branches) {
  SKIP_WITHOUT_NVRTC();
  const std::string branch = R"(
struct U { using T = BF16; DEV static TmaSource source(const Params& p, int col) { return {p.u, col}; } };
struct V { using T = BF16; DEV static TmaSource source(const Params& p, int col) { return {p.v, col}; } };
struct Factors {
  static constexpr int kWidth = 8;
  struct Computed { Frag<float, 8> counted; };
  DEV static Computed compute(const Params& p, int row, int col, const Frag<float, 8> (&acc)[1]) {
    const Frag<float, 8> scale = load<float, 8>(p.scale + col);
    Computed out;
    UNROLL for (int i = 0; i < 8; ++i) out.counted.v[i] = acc[0].v[i] * p.rows[row] * scale.v[i];
    return out;
  }
};
struct Branch {
  using A = U;
  using B = V;
  using Scaled = Factors;
  static constexpr bool kScales = sizeof(T) == 1;
  DEV static int columns(const Params& p) { return p.rank; }
};
)";
  for (const char* type : {"E4M3", "BF16"})
    for (const bool columns : {false, true}) {
      const bool bytes = type == std::string("E4M3");
      if (bytes && columns) continue;
      ProductShape product{.m = 8192,
                           .n = 8192,
                           .k = 4096,
                           .element_bytes = bytes ? 1 : 2,
                           .in_memory = !columns,
                           .b_in_columns = columns,
                           .branches = true};
      product.boxed_tiles_m = [&](int rows) { return div_up(product.m, rows); };
      const auto choices = tile_choices(product, {.name = "", .arch = "sm_90a", .shared_bytes = 232448});
      EXPECT_GE(choices.size(), 8U);
      for (const TileChoice& choice : choices) {
        SCOPED_TRACE(choice.text() + " " + type + (columns ? " columns" : ""));
        EXPECT_EQ(choice.splits, 1);
        const auto& tile = choice.as<WgmmaTileShape>();
        const std::string source =
            (columns ? "#include \"tenon/backend/cuda/device/vocabulary_columns.h\"\n" : std::string()) +
            head_of("gemm_wgmma", type, "GemmSizes", "TensorMap a, b, u, v; int rank; const float *rows, *scale;") +
            map_of("A", "a") + map_of("B", "b", columns) + epilogue_of("p.sizes.n") + branch +
            "using Tile = " + tile.type() + ";\nKERNEL(Tile::kThreads, " + std::to_string(tile.resident) +
            ", Params, p) { gemm_wgmma<Tile, A, B, Epilogue, Branch>(p); }\n";
        check(source, "sm_90a",
              {.blocks = tile.resident,
               .may_use_stack = columns && tile.m * tile.n >= 256 * 128,
               .contains = {Opcode::Hgmma, bytes ? Opcode::Qgmma : Opcode::Hgmma},
               .lacks = {Opcode::Hmma}});
      }
    }
}

TEST(CoreCode, WgmmaTiles) {
  SKIP_WITHOUT_NVRTC();
  for (const WgmmaTileShape& tile : {WgmmaTileShape{64, 64, 6, 2},
                                     {64, 128, 8},
                                     {64, 160, 3, 2},
                                     {128, 96, 7},
                                     {128, 160, 6},
                                     {128, 256, 4},
                                     {256, 96, 5},
                                     {256, 128, 4},
                                     {128, 128, 6, 1, 2},
                                     {64, 128, 4, 2, 2}})
    for (const bool conv : {false, true}) {
      SCOPED_TRACE(tile.type() + (conv ? " conv" : " gemm"));
      EXPECT_LE(tile.shared_bytes(), 232448);
      check(wgmma_source(conv, "F16", tile, 1), "sm_90a",
            {.contains = {Opcode::Hgmma, Opcode::TensorLoad, Opcode::Barrier},
             .lacks = {Opcode::Hmma},
             .wide_loads = 0.9,
             .wide_stores = 0.8});
    }
}

// Every tile that blocks of a cluster share.
TEST(CoreCode, TilesAlongK) {
  SKIP_WITHOUT_NVRTC();
  ProductShape product{.m = 64, .n = 896, .k = 4864};
  product.boxed_tiles_m = [&](int rows) { return div_up(product.m, rows); };
  std::set<std::string> types;
  DeviceFacts facts{.name = "", .arch = "sm_90a", .multiprocessors = 132, .shared_bytes = 232448};
  for (const TileChoice& choice : tile_choices(product, facts)) {
    if (!choice.core || choice.core->name() != "wgmma") continue;
    const auto& tile = choice.as<WgmmaTileShape>();
    if (tile.along_k == 1 || !types.insert(tile.type()).second) continue;
    SCOPED_TRACE(choice.text());
    check(wgmma_source(false, "F16", tile, tile.resident), "sm_90a",
          {.blocks = tile.resident, .contains = {Opcode::Hgmma}, .lacks = {Opcode::Hmma}});
  }
  EXPECT_EQ(types.size(), 3U);
}

}  // namespace
}  // namespace tenon::cuda::test
