// attention_simt on the emulator against sums in double: every tile, tails, causal masks, grouped queries, numbers of
// keys in memory, NaNs. A row's bits must be the same from every tile, alone and among others.
#include <gmock/gmock.h>

#include "tenon/backend/cuda/attention/simt_tile.h"
#include "tenon/backend/cuda/driver/cubin.h"
#include "tests/cuda/attention_problem.h"
#include "tests/cuda/nvrtc_environment.h"

namespace tenon::cuda::test {
namespace {

constexpr int kAdaLimit = 101376, kHopperLimit = 232448;

struct SimtParams {
  device::AttentionSizes sizes;
  const void *q, *k, *v;
  float *y, *lse;
  const int* counts;
  int tokens_first;
};

struct SimtVariant {
  AttentionSimtShape tile;
  bool computed = false;  ///< operands are functors instead of rows in memory
  bool plain = false;     ///< results as they are, and log-sum-exps
  bool counted = false;   ///< the number of keys is in memory
};

// An operand that stops the kernel if it reads out of range.
std::string simt_operand(const std::string& name, const std::string& pointer, const std::string& heads,
                         const std::string& tokens, bool computed) {
  const std::string row = "    const int heads = p.sizes." + heads + ", tokens = p.sizes." + tokens + R"(;
    if (r < 0 || r >= p.sizes.batch * heads * tokens) trap();
    const int b = r / tokens / heads, h = r / tokens % heads, s = r % tokens;
    const float* const at = p.)" +
                          pointer + " + static_cast<int64_t>(p.tokens_first ? (b * tokens + s) * heads + h : r) * " +
                          "p.sizes.depth;\n";
  if (computed)
    return "struct " + name + " {\n  DEV static Frag<float, 2> eval(const Params& p, int r, int col) {\n" + row +
           "    if (col < 0 || col + 1 >= p.sizes.depth) trap();\n    return {{at[col], at[col + 1]}};\n  }\n};\n";
  return "struct " + name +
         " {\n  using T = float;\n  static constexpr int kWidth = 4;\n  struct Row { const float* at; int depth; };\n"
         "  DEV static Row row(const Params& p, int r) {\n" +
         row +
         "    return {at, p.sizes.depth};\n  }\n  DEV static const float* at(const Row& row, int col) {\n"
         "    if (col < 0 || col + 3 >= row.depth) trap();\n    return row.at + col;\n  }\n};\n";
}

std::string simt_text(const SimtVariant& v) {
  const std::string y =
      "struct Epilogue {\n  static constexpr int kLanes = 1, kWidth = 2;\n  using Computed = Frag<float, 2>;\n"
      "  DEV static Computed compute(const Params&, int, int, const Frag<float, 2> (&acc)[1]) { return acc[0]; }\n"
      "  DEV static void store(const Params& p, int row, int col, const Computed& y) {\n"
      "    tenon::device::store(p.y + static_cast<int64_t>(row) * p.sizes.depth + col, y);\n  }\n};\n"
      "struct Lse {\n  static constexpr bool kWanted = true;\n"
      "  DEV static void store(const Params& p, int row, float value) { p.lse[row] = value; }\n};\n";
  const std::string counts =
      "struct Keys {\n  static constexpr bool kGiven = true;\n"
      "  DEV static int count(const Params& p, int batch) { return p.counts[batch]; }\n};\n";
  return "#include \"tenon/backend/cuda/device/attention/attention_simt.h\"\nusing namespace tenon::device;\n"
         "struct Params { AttentionSizes sizes; const float *q, *k, *v; float *y, *lse; const int* counts; int "
         "tokens_first; };\n" +
         simt_operand("Q", "q", "heads", "queries", v.computed) +
         simt_operand("K", "k", "kv_heads", "keys", v.computed) +
         simt_operand("V", "v", "kv_heads", "keys", v.computed) +
         (v.plain ? y : epilogue(1, 4, "p.sizes.depth") + "using Lse = NoLse;\n") +
         (v.counted ? counts : "using Keys = AllKeys;\n") + "using Tile = " + v.tile.type() +
         ";\nstatic_assert(Tile::kSharedBytes == " + std::to_string(v.tile.shared_bytes()) +
         " && Tile::kRows == " + std::to_string(v.tile.rows()) +
         ");\nKERNEL(Tile::kThreads, 1, Params, p) { attention_simt<Tile, Q, K, V, "
         "Epilogue, Keys, Lse>(p); }\n";
}

MakeAttentionCore simt_core(const SimtVariant& v) {
  return [v](const device::AttentionSizes& s) {
    return AttentionCore{v.tile.type(),
                         DType::F32,
                         {"attention", simt_text(v)},
                         attention_needs(v.tile, s).shape,
                         [](Device&, const AttentionProblem& x, float* y) {
                           const SimtParams params{x.s, x.q.get(), x.k.get(), x.v.get(), y, {}, {}, x.tokens_first};
                           const auto bytes = std::as_bytes(std::span(&params, 1));
                           return std::vector<std::byte>(bytes.begin(), bytes.end());
                         }};
  };
}
void check_simt(const SimtVariant& v, const device::AttentionSizes& s, bool tokens_first = false) {
  check_attention(simt_core(v), s, tokens_first);
}

// All tiles for heads of that depth.
std::vector<AttentionSimtShape> simt_tiles(int depth) {
  std::vector<AttentionSimtShape> out = attention_simt_tiles(depth, kHopperLimit);
  for (const AttentionSimtShape& tile : attention_simt_tiles(depth, kAdaLimit))
    if (std::ranges::none_of(out, [&](const auto& t) { return t.type() == tile.type(); })) out.push_back(tile);
  return out;
}

TEST(AttentionSimt, FaultsFail) {
  check_faults_fail(simt_core({simt_tiles(40).front()}));
  check_faults_fail(simt_core({simt_tiles(40).back()}));
}

TEST(AttentionSimt, EveryTile) {
  for (const int depth : {20, 40, 64, 72, 80, 96, 128, 160, 512})
    for (const AttentionSimtShape& tile : simt_tiles(depth))
      check_simt({tile}, {.queries = 37, .keys = 150, .depth = depth});
}

TEST(AttentionSimt, TailsOfRowsAndKeys) {
  for (const AttentionSimtShape& tile : simt_tiles(40))
    for (const int queries : {1, 65, 129})
      for (const int keys : {1, 64, 77, 129})
        check_simt({tile}, {.heads = 2, .kv_heads = 2, .queries = queries, .keys = keys, .depth = 40});
}

TEST(AttentionSimt, CausalMasksAndGroupedQueries) {
  for (const AttentionSimtShape& tile : simt_tiles(40)) {
    for (const auto& [queries, keys] : {std::pair{129, 129}, {40, 200}, {1, 70}, {200, 264}})
      check_simt({tile}, {.queries = queries, .keys = keys, .depth = 40, .causal = 1});
    const device::AttentionSizes s{.batch = 2, .heads = 6, .kv_heads = 2, .queries = 20, .keys = 77, .depth = 40};
    for (bool tokens_first : {false, true}) check_simt({tile}, s, tokens_first);
    check_simt({tile}, {.batch = 2, .heads = 7, .kv_heads = 1, .queries = 3, .keys = 600, .depth = 36, .causal = 1},
               true);
  }
}

TEST(AttentionSimt, ComputedOperands) {
  for (const int depth : {40, 128})
    for (const AttentionSimtShape& tile : simt_tiles(depth))
      check_simt({tile, true}, {.heads = 2, .kv_heads = 1, .queries = 33, .keys = 130, .depth = depth, .causal = 1});
}

TEST(AttentionSimt, SharpScores) {
  for (const AttentionSimtShape& tile : simt_tiles(64)) {
    check_simt({tile}, {.queries = 30, .keys = 300, .depth = 64, .scale = 9});
    check_simt({tile}, {.queries = 30, .keys = 300, .depth = 64, .scale = -0.5f});
  }
}

TEST(AttentionSimt, NansReachThoseWhoSeeThem) {
  for (const AttentionSimtShape& tile : simt_tiles(40)) check_nans_reach_those_who_see_them(simt_core({tile}));
}

TEST(AttentionSimt, KeysThatWeighNothing) {
  for (const AttentionSimtShape& tile : simt_tiles(40)) check_keys_that_weigh_nothing(simt_core({tile}), tile.kKeys);
}

// Results and log-sum-exps of a causal text of one group, bit by bit.
struct SimtText {
  device::AttentionSizes s;
  Emulator memory;
  RandomTensor q, k, v;
  std::vector<int> counts;

  SimtText(const device::AttentionSizes& sizes, std::vector<int> keys)
      : s(sizes),
        q(memory, DType::F32, int64_t{s.batch} * s.heads * s.queries * s.depth, 1),
        k(memory, DType::F32, int64_t{s.batch} * s.kv_heads * s.keys * s.depth, 2),
        v(memory, DType::F32, int64_t{s.batch} * s.kv_heads * s.keys * s.depth, 3),
        counts(std::move(keys)) {}

  // Each row's results, then its log-sum-exp.
  std::vector<std::vector<float>> rows(const SimtVariant& variant, const device::AttentionSizes& sizes,
                                       const float* queries, const std::vector<int>& there) const {
    Emulator device;
    const auto stream = device.make_stream();
    const int count = sizes.batch * sizes.heads * sizes.queries;
    const auto y = poisoned(device, int64_t{count} * sizes.depth * 4), lse = poisoned(device, int64_t{count} * 4);
    SimtParams params{sizes,
                      queries,
                      k.memory.get(),
                      v.memory.get(),
                      static_cast<float*>(y.get()),
                      static_cast<float*>(lse.get()),
                      there.data(),
                      0};
    device.load({"attention", simt_text(variant)})
        ->enqueue(*stream, attention_needs(variant.tile, sizes).shape, std::as_bytes(std::span(&params, 1)));
    std::vector<std::vector<float>> out;
    for (int r = 0; r < count; ++r) {
      const float* from = static_cast<const float*>(y.get()) + r * sizes.depth;
      out.emplace_back(from, from + sizes.depth).push_back(static_cast<const float*>(lse.get())[r]);
    }
    return out;
  }
};

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * 4), 0) << what;
}

// A text as a whole with every tile, and each of its tokens over a cache of as many keys as it sees.
TEST(AttentionSimt, ARowHasTheSameBitsAloneAndAmongOthers) {
  for (const int depth : {18, 64, 80, 512}) {
    SCOPED_TRACE(depth);
    const bool computed = depth % 4 != 0;
    const int texts = depth == 512 ? 1 : 2;
    const SimtText text(
        {.batch = texts, .heads = 3, .queries = 70, .keys = 270, .depth = depth, .scale = 0.2f, .causal = 1}, {});
    const std::vector<AttentionSimtShape> tiles = simt_tiles(depth);
    const auto* q = static_cast<const float*>(text.q.memory.get());
    const auto whole = text.rows({tiles.front(), computed, true}, text.s, q, {});
    for (const AttentionSimtShape& tile : tiles) {
      const auto other = text.rows({tile, computed, true}, text.s, q, {});
      for (size_t r = 0; r < whole.size(); ++r) expect_same_bits(whole[r], other[r], tile.type());
    }
    for (const int query : {0, 6, 69}) {  // the three heads of a token, in every text
      device::AttentionSizes one = text.s;
      one.queries = 1;
      std::vector<float> mine;
      for (int head = 0; head < texts * 3; ++head) {
        const float* row = q + (int64_t{head} * 70 + query) * depth;
        mine.insert(mine.end(), row, row + depth);
      }
      const std::vector<int> seen(static_cast<size_t>(texts), query + 201);
      for (const AttentionSimtShape& tile : tiles) {
        const auto token = text.rows({tile, computed, true, true}, one, mine.data(), seen);
        for (size_t head = 0; head < token.size(); ++head)
          expect_same_bits(token[head], whole[head * 70 + static_cast<size_t>(query)], tile.type());
      }
    }
  }
}

// Fewer keys than the cache has room for, none at all, and more than there can be.
TEST(AttentionSimt, AsManyKeysAsNumbersSay) {
  const SimtText text({.batch = 4, .heads = 2, .queries = 5, .keys = 130, .depth = 40, .scale = 0.2f}, {});
  auto* values = static_cast<float*>(text.v.memory.get());
  for (const AttentionSimtShape& tile : simt_tiles(40)) {
    const auto* q = static_cast<const float*>(text.q.memory.get());
    const auto got = text.rows({tile, false, true, true}, text.s, q, {65, 0, 130, 900});
    const float before = values[65 * 40];
    values[65 * 40] = NAN;  // behind the first text's keys
    const auto again = text.rows({tile, false, true, true}, text.s, q, {65, 0, 130, 900});
    values[65 * 40] = before;
    for (size_t r = 0; r < 10; ++r) expect_same_bits(got[r], again[r], tile.type());
    const auto all = text.rows({tile, false, true}, text.s, q, {});
    for (size_t r = 10; r < 20; ++r) {
      EXPECT_TRUE(std::isnan(got[r][0])) << tile.type();
      EXPECT_EQ(got[r][40], -INFINITY) << tile.type();
    }
    for (size_t r = 20; r < 40; ++r) expect_same_bits(got[r], all[r], tile.type());
  }
}

TEST(AttentionSimt, TilesFitTheirDevices) {
  for (int depth = 1; depth <= 512; ++depth)
    for (const int limit : {kAdaLimit, kHopperLimit}) {
      const auto tiles = attention_simt_tiles(depth, limit);
      EXPECT_TRUE(std::ranges::any_of(tiles, [](const auto& t) { return t.few; })) << depth;
      EXPECT_TRUE(std::ranges::any_of(tiles, [](const auto& t) { return !t.few; })) << depth;
      for (const AttentionSimtShape& tile : tiles) {
        EXPECT_LE(tile.shared_bytes(), limit) << tile.type();
        EXPECT_TRUE(tile.depth >= depth && tile.depth < depth + 32) << tile.type() << " for " << depth;
      }
    }
}

TEST(AttentionSimt, TilesSuitTheirProblems) {
  const DeviceFacts hopper{.name = {}, .arch = "sm_90a", .multiprocessors = 132, .shared_bytes = kHopperLimit},
      ada{.name = {}, .arch = "sm_89", .multiprocessors = 128, .shared_bytes = kAdaLimit};
  const auto picked = [](const DeviceFacts& facts, const device::AttentionSizes& s) {
    return pick_attention_simt(s, facts).type();
  };
  const device::AttentionSizes picture{
      .batch = 2, .heads = 8, .kv_heads = 8, .queries = 4096, .keys = 4096, .depth = 40},
      token{.heads = 14, .kv_heads = 2, .queries = 1, .keys = 384, .depth = 64},
      decoder{.queries = 4096, .keys = 4096, .depth = 512};
  const device::AttentionSizes nothing{.heads = 0, .kv_heads = 0, .queries = 1, .keys = 1, .depth = 64};
  EXPECT_EQ(attention_needs(pick_attention_simt(nothing, hopper), nothing).shape.grid_x, 0u);
  EXPECT_EQ(picked(hopper, picture), "AttentionSimtTile<8, 40, 40, 4, false>");
  EXPECT_EQ(picked(ada, picture), "AttentionSimtTile<8, 40, 40, 4, false>");
  EXPECT_EQ(picked(hopper, token), "AttentionSimtTile<2, 64, 64, 4, true>");
  EXPECT_EQ(picked(ada, token), "AttentionSimtTile<2, 64, 32, 4, true>");
  EXPECT_EQ(picked(hopper, decoder), "AttentionSimtTile<2, 512, 64, 4, false>");
  EXPECT_EQ(picked(ada, decoder), "AttentionSimtTile<2, 512, 32, 4, false>");
}

// No tile spills, and registers suffice for two blocks a multiprocessor.
TEST(AttentionSimt, MachineCode) {
  SKIP_WITHOUT_NVRTC();
  for (const auto& [arch, limit] : {std::pair{"sm_89", kAdaLimit}, {"sm_90a", kHopperLimit}})
    for (const int depth : {64, 160, 512})
      for (const AttentionSimtShape& tile : attention_simt_tiles(depth, limit)) {
        const SimtVariant variant{tile, depth == 160};
        const KernelBinary code = machine_code({"attention", simt_text(variant)}, arch);
        const CubinKernel kernel = read_cubin_kernel(code.cubin, kKernelName);
        std::vector<Opcode> copies;
        if (!variant.computed) copies.push_back(Opcode::CopyAsync);
        EXPECT_THAT(check_kernel(kernel, code.log, {.threads = tile.threads(), .blocks = 2, .contains = copies}),
                    testing::IsEmpty())
            << arch << " " << tile.type() << " " << kernel.registers << " registers";
      }
}

}  // namespace
}  // namespace tenon::cuda::test
