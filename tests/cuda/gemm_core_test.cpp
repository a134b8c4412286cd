// The cores of products on the emulator against sums in double: every tile, tails, batches, lanes, splits, runs,
// element types.
#include <chrono>

#include "tests/cuda/core_harness.h"

namespace tenon::cuda::test {
namespace {

struct Params {
  device::GemmSizes sizes;
  const void *a, *b;
  float* y;
};

struct Variant {
  MmaTileShape tile;
  DType type = DType::BF16;
  int lanes = 1, width = 8;  ///< of the epilogue
  int operand_bytes = 16;    ///< of a vector
};

std::string source_of(const Variant& v) {
  const std::string t = element_name(v.type);
  const int width = v.operand_bytes / static_cast<int>(size_of(v.type));
  return "#include \"tenon/backend/cuda/device/products/gemm_mma.h\"\nusing namespace tenon::device;\nstruct Params { "
         "GemmSizes "
         "sizes; "
         "const " +
         t + "*a, *b; float* y; };\n" + operand("A", v.type, "a", "p.sizes.k", width) +
         operand("B", v.type, "b", "p.sizes.k", width) + epilogue(v.lanes, v.width, "p.sizes.n / kLanes") +
         "using Tile = " + v.tile.type() +
         ";\nKERNEL(Tile::kThreads, 1, Params, p) { gemm_mma<Tile, A, B, Epilogue>(p); }\n";
}

// A random problem, and the check of its result.
struct Problem {
  DType type;
  int lanes;
  device::GemmSizes sizes;
  int64_t rows = static_cast<int64_t>(sizes.batch) * sizes.m, weights = static_cast<int64_t>(sizes.batch) * sizes.n;
  int columns = sizes.n / lanes;
  Emulator memory = Emulator();
  RandomTensor a{memory, type, rows*sizes.k, 1}, b{memory, type, weights*sizes.k, 2};

  std::string name() const {
    return std::to_string(sizes.m) + "x" + std::to_string(sizes.n) + "x" + std::to_string(sizes.k) + " batch " +
           std::to_string(sizes.batch) + " splits " + std::to_string(sizes.split.splits) + " lanes " +
           std::to_string(lanes);
  }
  double sum(int64_t row, int64_t other) const {
    double total = 0;
    for (int i = 0; i < sizes.k; ++i)
      total += static_cast<double>(a.values[static_cast<size_t>(row * sizes.k + i)]) *
               b.values[static_cast<size_t>(other * sizes.k + i)];
    return total;
  }
  void compare(const std::vector<float>& y) const {
    std::vector<double> wanted, allowed;
    for (int64_t row = 0; row < rows; ++row)
      for (int col = 0; col < columns; ++col) {
        double want = 1, size = 1;
        for (int lane = 0; lane < lanes; ++lane) {
          const double part = sum(row, row / sizes.m * sizes.n + lane * columns + col);
          want *= part, size *= std::abs(part) + std::sqrt(sizes.k);
        }
        want += static_cast<double>(row) + 0.5 * col;
        wanted.push_back(want);
        allowed.push_back(0x1p-24 * (std::sqrt(sizes.k) * 4 * size + 2 * std::abs(want)) + stage_error(type) * size);
      }
    EXPECT_TRUE(close(y, wanted, [&](size_t i, double) { return allowed[i]; }));
  }
};

void check(const Variant& v, device::GemmSizes sizes) {
  sizes.range = sum_range(sizes.k);
  const Problem problem{v.type, v.lanes, sizes};
  SCOPED_TRACE(v.tile.type() + " " + problem.name());
  problem.compare(run_core<Params>("gemm", source_of(v), gemm_needs(v.tile, sizes, v.lanes),
                                   {sizes, problem.a.memory.get(), problem.b.memory.get(), nullptr},
                                   problem.rows * problem.columns));
}

constexpr MmaTileShape kSmall{64, 64, 2, 2, 128, 3};

TEST(GemmCore, EveryTile) {
  const MmaTileShape tiles[] = {{128, 128, 2, 2, 64, 4}, {128, 128, 2, 4, 128, 3}, {128, 64, 2, 2, 64, 4},
                                {64, 128, 2, 2, 128, 3}, {64, 64, 2, 2, 64, 5},    {32, 64, 2, 2, 128, 4},
                                {128, 256, 2, 4, 64, 3}};
  for (const MmaTileShape& tile : tiles) {
    Emulator::statistics() = {};
    check({tile}, {.m = 150, .n = 280, .k = 200});
    EXPECT_EQ(Emulator::statistics().bank_conflicts, 0);
    EXPECT_LT(0, Emulator::statistics().mma);
  }
}

TEST(GemmCore, TailsOfEverySize) {
  for (const auto& [m, n, k] :
       {std::tuple{1, 8, 8}, {63, 64, 64}, {64, 72, 56}, {65, 8, 264}, {130, 136, 16}, {7, 200, 384}})
    check({kSmall}, {.m = m, .n = n, .k = k});
}

TEST(GemmCore, FaultsFail) {
  const Problem problem{DType::BF16, 1, {.m = 70, .n = 40, .k = 72}};
  const std::vector<float> y = run_core<Params>(
      "gemm", source_of(Variant{kSmall}), gemm_needs(kSmall, problem.sizes, 1),
      {problem.sizes, problem.a.memory.get(), problem.b.memory.get(), nullptr}, problem.rows * problem.columns);
  expect_faults_fail(y, [&](const std::vector<float>& out) { problem.compare(out); });
}

TEST(GemmCore, Batches) { check({kSmall}, {.m = 70, .n = 40, .k = 72, .batch = 3}); }

TEST(GemmCore, SplitsSumInOrder) {
  for (int splits = 1; splits <= 4; ++splits)
    check({kSmall}, {.m = 70, .n = 72, .k = 328, .batch = 2, .split = {splits}});
  // More splits than steps: parts without work add nothing.
  check({kSmall}, {.m = 20, .n = 24, .k = 128, .split = {4}});
}

TEST(GemmCore, LanesMeetInTheEpilogue) {
  for (const MmaTileShape& tile : {kSmall, MmaTileShape{128, 128, 2, 2, 64, 4}})
    for (int n : {64, 16, 208}) check({tile, DType::BF16, 2}, {.m = 70, .n = n, .k = 88, .split = {n == 16 ? 2 : 1}});
}

TEST(GemmCore, RunsOfTheEpilogueAndOfTheOperands) {
  for (int width : {1, 2, 4}) check({kSmall, DType::BF16, 1, width}, {.m = 33, .n = width * 13, .k = 40});
  for (int bytes : {4, 8}) check({kSmall, DType::BF16, 1, 8, bytes}, {.m = 33, .n = 40, .k = bytes / 2 * 37});
}

TEST(GemmCore, ElementTypes) {
  for (DType type : {DType::F16, DType::E4M3})
    for (int k : {32, 176}) check({kSmall, type}, {.m = 70, .n = 72, .k = k, .split = {k == 176 ? 2 : 1}});
}

TEST(GemmCore, F32) {
  for (const MmaTileShape& tile :
       {MmaTileShape{128, 64, 2, 2, 128, 3}, {64, 64, 2, 2, 64, 4}, {32, 32, 1, 2, 128, 4}}) {
    check({tile, DType::F32, 1, 4}, {.m = 150, .n = 136, .k = 1100});
    check({tile, DType::F32, 2, 2}, {.m = 33, .n = 104, .k = 64, .batch = 2});
    check({tile, DType::F32, 1, 1}, {.m = 7, .n = 3, .k = 4});
  }
  check({{64, 64, 2, 2, 64, 4}, DType::F32, 1, 4}, {.m = 256, .n = 320, .k = 320});  // a layer of Stable Diffusion
}

TEST(GemmCore, LongSumsOfE4m3) { check({kSmall, DType::E4M3}, {.m = 40, .n = 40, .k = 10240}); }

TEST(GemmCore, ALayerOfStableDiffusion) {
  const auto start = std::chrono::steady_clock::now();
  check({{128, 64, 2, 2, 64, 4}, DType::F16}, {.m = 256, .n = 320, .k = 320});
  RecordProperty("seconds",
                 std::to_string(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
}

// gemm_skinny: rows of B may be stored permuted.
struct SkinnyVariant {
  SkinnyTileShape tile;
  DType type = DType::BF16;
  int lanes = 1, width = 2;
  bool permuted = false, constant = true;
};

std::vector<float> run_skinny(const SkinnyVariant& v, const Problem& problem) {
  device::GemmSizes sizes = problem.sizes;
  sizes.range = sum_range(sizes.k);
  const std::string t = element_name(v.type);
  const std::string source =
      "#include \"tenon/backend/cuda/device/products/gemm_skinny.h\"\nusing namespace tenon::device;\n"
      "struct Params { GemmSizes sizes; const " +
      t + "*a, *b; float* y; };\n" + operand("A", v.type, "a", "p.sizes.k", 8) +
      operand("Rows", v.type, "b", "p.sizes.k", 8) +
      "struct B : Rows { static constexpr bool kPermuted = " + (v.permuted ? "true" : "false") +
      ", kConstant = " + (v.constant ? "true" : "false") + "; };\n" + epilogue(v.lanes, v.width, "p.sizes.n / kLanes") +
      "using Tile = " + v.tile.type(sizes.m, v.lanes, sizes.k) +
      ";\nKERNEL(Tile::kThreads, 1, Params, p) { gemm_skinny<Tile, A, B, Epilogue>(p); }\n";
  const int64_t row_bytes = int64_t{sizes.k} * size_of(v.type), stored = div_up(problem.weights, 32) * 32;
  const std::shared_ptr<void> b = poisoned(const_cast<Emulator&>(problem.memory), stored * row_bytes);
  for (int64_t row = 0; row < problem.weights; ++row) {
    const int64_t in_block = row % 32, place = row / 32 * 32 + in_block / 2 % 4 * 8 + in_block / 8 * 2 + in_block % 2;
    std::memcpy(static_cast<char*>(b.get()) + (v.permuted ? place : row) * row_bytes,
                static_cast<const char*>(problem.b.memory.get()) + row * row_bytes, static_cast<size_t>(row_bytes));
  }
  return run_core<Params>("gemm", source, gemm_needs(v.tile, sizes, v.lanes),
                          {sizes, problem.a.memory.get(), b.get(), nullptr}, problem.rows * problem.columns);
}

void check(const SkinnyVariant& v, device::GemmSizes sizes) {
  const Problem problem{v.type, v.lanes, sizes};
  SCOPED_TRACE(v.tile.type(sizes.m, v.lanes, sizes.k) + " " + problem.name());
  problem.compare(run_skinny(v, problem));
}

TEST(GemmSkinny, EveryTile) {
  for (const int warps : {8, 16})
    for (const int groups : {1, 2, 4})
      for (const bool permuted : {false, true})
        check(SkinnyVariant{.tile = {groups, warps}, .permuted = permuted}, {.m = 5, .n = 104, .k = 600});
}
TEST(GemmSkinny, BlocksThatWalk) {
  for (const int warps : {8, 16})
    for (const int m : {3, 16})
      for (const auto& [n, k] : {std::pair{104, 600}, {1000, 200}, {64, 40}})
        check(SkinnyVariant{.tile = {4, warps, 3}, .permuted = m == 3}, {.m = m, .n = n, .k = k});
  check(SkinnyVariant{.tile = {2, 8, 2}, .lanes = 2, .permuted = true}, {.m = 9, .n = 192, .k = 400});
}
TEST(GemmSkinny, RowsAndTails) {
  for (int m = 1; m <= 16; ++m)
    check(SkinnyVariant{.tile = {1, 8}, .permuted = m % 2 == 0}, {.m = m, .n = 72, .k = 72});
  for (const auto& [n, k] : {std::pair{1, 8}, {2, 24}, {33, 32}, {31, 4872}, {8, 136}})
    check(SkinnyVariant{.tile = {2, 8}, .width = n % 2 ? 1 : 2, .permuted = n != 33}, {.m = 3, .n = n, .k = k});
}
// Up to eight fragments of 8 rows, the last of which may be empty or end early.
TEST(GemmSkinny, MoreRows) {
  for (const int m : {17, 24, 31, 32, 40, 48, 64})
    for (const SkinnyTileShape& tile : {SkinnyTileShape{1, 16}, {2, 8}, {4, 8}, {3, 16}, {4, 8, 3}})
      check(SkinnyVariant{.tile = tile, .permuted = m % 2 == 0}, {.m = m, .n = 104, .k = 600});
  check(SkinnyVariant{.tile = {2, 8}, .lanes = 2, .permuted = true}, {.m = 29, .n = 192, .k = 400});
  check(SkinnyVariant{.tile = {1, 16}, .permuted = true}, {.m = 32, .n = 64, .k = 4864});
}
TEST(GemmSkinny, LanesTypesAndComputedOperands) {
  for (const bool permuted : {false, true})
    check(SkinnyVariant{.tile = {2, 8}, .lanes = 2, .permuted = permuted}, {.m = 9, .n = 192, .k = 200});
  check(SkinnyVariant{.tile = {1, 8}, .type = DType::F16, .constant = false}, {.m = 9, .n = 40, .k = 200});
}
TEST(GemmSkinny, AQwenLayer) {
  check(SkinnyVariant{.tile = {1, 16}, .permuted = true}, {.m = 1, .n = 896, .k = 4864});
  check(SkinnyVariant{.tile = {2, 8}, .lanes = 2, .permuted = true}, {.m = 16, .n = 2 * 4864, .k = 896});
}
// A row's result is bit-identical alone and among others.
TEST(GemmSkinny, RowsDoNotDependOnTheBatch) {
  const SkinnyVariant v{.tile = {1, 8}, .permuted = true};
  const Problem many{v.type, 1, {.m = 16, .n = 64, .k = 896}}, one{v.type, 1, {.m = 1, .n = 64, .k = 896}};
  const std::vector<float> all = run_skinny(v, many), alone = run_skinny(v, one);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(all[i], alone[i]) << i;
}
TEST(GemmSkinny, FaultsFail) {
  const SkinnyVariant v{.tile = {1, 8}};
  const Problem problem{v.type, 1, {.m = 7, .n = 40, .k = 72}};
  expect_faults_fail(run_skinny(v, problem), [&](const std::vector<float>& out) { problem.compare(out); });
}

// gemm_wgmma: A may be joined from two tensors.
struct HopperParams {
  device::GemmSizes sizes;
  TensorMap a, a2, b;
  int first_columns;  ///< in a
  float* y;
};

struct HopperVariant {
  WgmmaTileShape tile;
  DType type = DType::BF16;
  int lanes = 1, width = 8;
  int first_columns = 0;  ///< of two joined tensors; 0: one tensor
  bool permuted = false;  ///< B in memory, its rows padded to blocks of 32
};

std::vector<float> run_hopper(const HopperVariant& v, const Problem& problem) {
  device::GemmSizes sizes = problem.sizes;
  sizes.range = sum_range(sizes.k);
  if (v.tile.along_k > 1) sizes.split.splits = v.tile.along_k;
  const auto bytes = static_cast<int>(size_of(v.type));
  const std::string t = element_name(v.type);
  const std::string source =
      "#include \"tenon/backend/cuda/device/products/gemm_wgmma.h\"\nusing namespace tenon::device;\n"
      "struct Params { GemmSizes sizes; TensorMap a, a2, b; int first_columns; float* y; };\n"
      "struct A { using T = " +
      t +
      "; static constexpr bool kConstant = false; DEV static TmaSource source(const Params& p, int col) {\n"
      "  return col < p.first_columns ? TmaSource{p.a, col} : TmaSource{p.a2, col - p.first_columns}; } };\n"
      "struct B { using T = " +
      t + "; static constexpr bool kConstant = true, kPermuted = " + (v.permuted ? "true" : "false") +
      "; DEV static TmaSource source(const Params& p, int col) { return {p.b, col}; } };\n" +
      epilogue(v.lanes, v.width, "p.sizes.n / kLanes") + "using Tile = " + v.tile.type() +
      ";\nKERNEL(Tile::kThreads, 1, Params, p) { gemm_wgmma<Tile, A, B, Epilogue>(p); }\n";
  const int first = v.first_columns > 0 ? v.first_columns : sizes.k;
  auto box_of = [&](std::shared_ptr<void>& memory, int from, int columns) {
    memory = poisoned(const_cast<Emulator&>(problem.memory), problem.rows * columns * bytes);
    for (int64_t row = 0; row < problem.rows; ++row)
      std::memcpy(static_cast<char*>(memory.get()) + row * columns * bytes,
                  static_cast<const char*>(problem.a.memory.get()) + (row * sizes.k + from) * bytes,
                  static_cast<size_t>(columns) * static_cast<size_t>(bytes));
    return problem.memory.encode(rows_box(memory.get(), bytes, problem.rows, columns, columns * bytes, v.tile.m));
  };
  std::shared_ptr<void> a, a2;
  HopperParams params{};
  params.sizes = sizes, params.first_columns = first;
  params.a = box_of(a, 0, first);
  if (first < sizes.k) params.a2 = box_of(a2, first, sizes.k - first);
  const int64_t row_bytes = int64_t{sizes.k} * bytes, blocks = div_up(problem.weights, 32);
  const std::shared_ptr<void> b = poisoned(const_cast<Emulator&>(problem.memory), blocks * 32 * row_bytes);
  for (int64_t row = 0; row < problem.weights; ++row) {
    const int64_t in_block = row % 32, place = row / 32 * 32 + in_block / 2 % 4 * 8 + in_block / 8 * 2 + in_block % 2;
    std::memcpy(static_cast<char*>(b.get()) + (v.permuted ? place : row) * row_bytes,
                static_cast<const char*>(problem.b.memory.get()) + row * row_bytes, static_cast<size_t>(row_bytes));
  }
  params.b = problem.memory.encode(
      v.permuted ? rows_box(b.get(), bytes, blocks * 32, sizes.k, row_bytes, v.tile.rows_of_b(v.lanes))
                 : permuting_box(b.get(), bytes, problem.weights, sizes.k, row_bytes));
  return run_core("gemm", source, gemm_needs(v.tile, sizes, v.lanes, 3), params, problem.rows * problem.columns);
}

void check(const HopperVariant& v, device::GemmSizes sizes) {
  const Problem problem{v.type, v.lanes, sizes};
  SCOPED_TRACE(v.tile.type() + " " + problem.name());
  problem.compare(run_hopper(v, problem));
}

TEST(GemmHopper, EveryTile) {
  for (const WgmmaTileShape& tile : {WgmmaTileShape{64, 32, 6},
                                     {64, 160, 3, 2},
                                     {128, 64, 4},
                                     {128, 96, 6},
                                     {128, 160, 5},
                                     {128, 224, 4},
                                     {128, 256, 4},
                                     {256, 96, 3},
                                     {256, 128, 3}})
    check(HopperVariant{tile}, {.m = 150, .n = 280, .k = 200});
}
// Blocks that share operand B, with tiles outside the result, lanes, parts of K and batches.
TEST(GemmHopper, Clusters) {
  for (const WgmmaTileShape& tile : {WgmmaTileShape{64, 64, 4, 1, 2}, {128, 192, 4, 1, 2}, {256, 64, 3, 1, 2}})
    for (int m : {40, 150, 300})
      for (int splits : {1, 3})
        check(HopperVariant{.tile = tile}, {.m = m, .n = 280, .k = 400, .split = {.splits = splits}});
  check(HopperVariant{.tile = {64, 128, 4, 1, 2}, .lanes = 2}, {.m = 150, .n = 288, .k = 200});
  check(HopperVariant{.tile = {64, 64, 4, 2, 2}}, {.m = 100, .n = 72, .k = 200, .batch = 3});
}
// Blocks that share a tile: shares of several sizes, blocks without one, shares and parts of K outside.
TEST(GemmHopper, BlocksAlongK) {
  const auto shared = [](int m, int n, int stages, int resident, int blocks) {
    return WgmmaTileShape{.m = m, .n = n, .stages = stages, .resident = resident, .along_k = blocks};
  };
  for (const WgmmaTileShape& tile : {shared(64, 64, 8, 1, 2), shared(64, 64, 6, 2, 8), shared(64, 32, 8, 2, 4),
                                     shared(128, 192, 5, 1, 4), shared(256, 64, 4, 1, 2), shared(128, 96, 7, 1, 8)})
    check(HopperVariant{.tile = tile}, {.m = 150, .n = 200, .k = 520, .batch = 2});
  const WgmmaTileShape four = shared(64, 96, 5, 2, 4);
  check(HopperVariant{.tile = four}, {.m = 70, .n = 72, .k = 328});  // 6 steps: a block has none
  check(HopperVariant{four, DType::E4M3}, {.m = 70, .n = 72, .k = 912});
  check(HopperVariant{.tile = four, .permuted = true}, {.m = 70, .n = 280, .k = 600});
}
TEST(GemmHopper, PermutedWeights) {
  for (const WgmmaTileShape& tile : {WgmmaTileShape{64, 32, 6}, {128, 160, 4}, {128, 192, 4, 1, 2}, {256, 128, 3}})
    check(HopperVariant{.tile = tile, .permuted = true}, {.m = 300, .n = 280, .k = 200});
  for (const int cluster : {1, 2})
    check(HopperVariant{.tile = {64, 128, 4, 1, cluster}, .lanes = 2, .permuted = true},
          {.m = 150, .n = 320, .k = 200});
}
TEST(GemmHopper, TailsOfEverySize) {
  for (const auto& [m, n, k] : {std::tuple{1, 8, 8}, {64, 64, 64}, {65, 72, 56}, {130, 8, 520}, {7, 200, 384}})
    check(HopperVariant{{64, 64, 3}}, {.m = m, .n = n, .k = k});
}
TEST(GemmHopper, BatchesAndSplits) {
  for (int splits = 1; splits <= 4; ++splits)
    check(HopperVariant{{128, 64, 3}}, {.m = 140, .n = 72, .k = 328, .batch = 2, .split = {splits}});
}
TEST(GemmHopper, LanesRunsAndElements) {
  check(HopperVariant{{128, 128, 4}, DType::BF16, 2}, {.m = 130, .n = 208, .k = 88});
  check(HopperVariant{{128, 256, 4}, DType::F16, 2}, {.m = 70, .n = 400, .k = 88});
  check(HopperVariant{{64, 64, 4}, DType::F16, 1, 4}, {.m = 70, .n = 72, .k = 88});
  check(HopperVariant{{64, 64, 4}, DType::E4M3}, {.m = 70, .n = 72, .k = 176, .split = {2}});
}
// Fails if wgmma alone accumulates: the error is then 3e-3, not 4e-4 (relative to the magnitude of such sums).
TEST(GemmHopper, LongSumsOfE4m3) {
  for (const WgmmaTileShape& tile : {WgmmaTileShape{64, 64, 4}, {128, 256, 4}, {256, 128, 4}})
    check(HopperVariant{tile, DType::E4M3}, {.m = 70, .n = 40, .k = 10240});
}
// One order of sums: a row has the same bits from the core for few rows, with any tile, and from the one for many. Down
// to one range, ranges that end early, and one or two of these at the end.
TEST(GemmHopper, RangesAddUpAsOfAFewRows) {
  for (const auto& [n, k] : {std::pair{64, 64}, {64, 40}, {72, 200}, {64, 896}, {40, 1096}, {32, 4864}}) {
    const device::GemmSizes sizes{.m = 16, .n = n, .k = k};
    const Problem problem{DType::BF16, 1, sizes};
    SCOPED_TRACE(problem.name());
    const std::vector<float> few = run_skinny({.tile = {2, 8}, .permuted = true}, problem);
    problem.compare(few);
    for (const SkinnyTileShape& tile : {SkinnyTileShape{1, 16}, {1, 16, 3}, {2, 8, 2}})
      EXPECT_EQ(run_skinny({.tile = tile, .permuted = true}, problem), few) << tile.type(16, 1, k);
    for (WgmmaTileShape tile : {WgmmaTileShape{64, 64, 4},
                                {128, 128, 3},
                                {128, 64, 3, 1, 2},
                                {.m = 64, .n = 64, .stages = 8, .along_k = 8}}) {
      EXPECT_TRUE(tile.adds_ranges());
      tile.in_ranges = true;
      EXPECT_EQ(run_hopper({.tile = tile, .permuted = true}, problem), few) << tile.type();
    }
    // More rows, in tiles of 64.
    const Problem more{DType::BF16, 1, {.m = 50, .n = n, .k = k}};
    const std::vector<float> many = run_skinny({.tile = {2, 8}, .permuted = true}, more);
    more.compare(many);
    EXPECT_EQ(run_skinny({.tile = {1, 16}, .permuted = true}, more), many);
    WgmmaTileShape hopper{64, 64, 4};
    hopper.in_ranges = true;
    EXPECT_EQ(run_hopper({.tile = hopper, .permuted = true}, more), many);
    if (k > 896) {
      EXPECT_NE(run_hopper({.tile = {64, 64, 4}, .permuted = true}, problem), few);
    }
  }
}
TEST(GemmHopper, JoinedOperand) {
  check(HopperVariant{{64, 64, 4}, DType::BF16, 1, 8, 128}, {.m = 70, .n = 72, .k = 200});
}

}  // namespace
}  // namespace tenon::cuda::test
