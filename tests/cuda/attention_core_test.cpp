// attention_mma on the emulator against sums in double: every kind of head, tails of queries and keys, causal masks,
// grouped queries, strided heads, NaNs.
#include <gmock/gmock.h>

#include "tenon/backend/cuda/attention/attention_tiles.h"
#include "tenon/backend/cuda/driver/cubin.h"
#include "tests/cuda/attention_problem.h"
#include "tests/cuda/nvrtc_environment.h"

namespace tenon::cuda::test {
namespace {

constexpr int kAdaShared = 101376, kHopperShared = 232448;

struct Params {
  device::AttentionSizes sizes;
  const void *q, *k, *v;
  float* y;
  int tokens_first;  ///< q, k and v are [batch, token, head, depth], else [batch, head, token, depth]
};

struct Variant {
  AttentionTileShape tile;
  DType type = DType::BF16;
  int width = 8;  ///< of the epilogue
};

// An operand that stops the kernel if it reads out of range.
std::string head_operand(const std::string& name, const std::string& pointer, const std::string& heads,
                         const std::string& tokens) {
  return "struct " + name +
         " {\n  using T = Element;\n  static constexpr int kWidth = 8;\n  struct Row { const T* at; int depth; };\n"
         "  DEV static Row row(const Params& p, int r) {\n    const int heads = p.sizes." +
         heads + ", tokens = p.sizes." + tokens + R"(;
    if (r < 0 || r >= p.sizes.batch * heads * tokens) trap();
    const int b = r / tokens / heads, h = r / tokens % heads, s = r % tokens;
    return {p.)" +
         pointer + R"( + static_cast<int64_t>(p.tokens_first ? (b * tokens + s) * heads + h : r) * p.sizes.depth,
            p.sizes.depth};
  }
  DEV static const T* at(const Row& row, int col) {
    if (col < 0 || col >= row.depth) trap();
    return row.at + col;
  }
};
)";
}

std::string source_of(const Variant& v) {
  return "#include \"tenon/backend/cuda/device/attention/attention_mma.h\"\nusing namespace tenon::device;\nusing "
         "Element = " +
         element_name(v.type) +
         ";\nstruct Params { AttentionSizes sizes; const Element *q, *k, *v; float* y; int tokens_first; };\n" +
         head_operand("Q", "q", "heads", "queries") + head_operand("K", "k", "kv_heads", "keys") +
         head_operand("V", "v", "kv_heads", "keys") + epilogue(1, v.width, "p.sizes.depth") +
         "using Tile = " + v.tile.type() +
         ";\nstatic_assert(Tile::kSharedBytes == " + std::to_string(v.tile.shared_bytes()) +
         ");\nKERNEL(Tile::kThreads, 1, Params, p) { attention_mma<Tile, Q, K, V, Epilogue>(p); }\n";
}

MakeAttentionCore core_of(const Variant& v) {
  return [v](const device::AttentionSizes& s) {
    return AttentionCore{v.tile.type(),
                         v.type,
                         {"attention", source_of(v)},
                         attention_needs(v.tile, s).shape,
                         [](Device&, const AttentionProblem& x, float* y) {
                           const Params params{x.s, x.q.get(), x.k.get(), x.v.get(), y, x.tokens_first};
                           const auto bytes = std::as_bytes(std::span(&params, 1));
                           return std::vector<std::byte>(bytes.begin(), bytes.end());
                         }};
  };
}
void check(const Variant& v, const device::AttentionSizes& s, bool tokens_first = false) {
  check_attention(core_of(v), s, tokens_first);
}

Variant picked(int depth, DType type = DType::BF16) { return {pick_attention_tile(depth, kAdaShared), type}; }

TEST(AttentionCore, FaultsFail) { check_faults_fail(core_of(picked(40))); }

TEST(AttentionCore, SelfAttention) {
  check(picked(40), {.batch = 2, .heads = 2, .kv_heads = 2, .queries = 192, .keys = 192, .depth = 40});
  check(picked(64, DType::F16), {.heads = 2, .kv_heads = 2, .queries = 128, .keys = 257, .depth = 64});
  check(picked(80), {.queries = 130, .keys = 128, .depth = 80});
  check(picked(160), {.queries = 70, .keys = 130, .depth = 160});
}

// Queries that stay in shared memory, eight warps, all keys of a prompt in one tile.
TEST(AttentionCore, OtherTiles) {
  check({pick_attention_tile(80, kHopperShared)}, {.queries = 130, .keys = 140, .depth = 80});
  check({{128, 128, 128, 64, 8, 3}}, {.queries = 100, .keys = 100, .depth = 128, .causal = 1});
  check({{48, 40, 128, 80, 4, 2}}, {.heads = 2, .kv_heads = 2, .queries = 129, .keys = 77, .depth = 40});
}

TEST(AttentionCore, TailsOfQueriesAndKeys) {
  for (int queries : {1, 63, 129})
    for (int keys : {1, 77, 129})
      check(picked(40), {.heads = 2, .kv_heads = 2, .queries = queries, .keys = keys, .depth = 40});
}

TEST(AttentionCore, CausalMasks) {
  for (const auto& [queries, keys] : {std::pair{129, 129}, {40, 200}, {1, 70}, {200, 264}})
    check(picked(40), {.queries = queries, .keys = keys, .depth = 40, .causal = 1});
  check(picked(160), {.queries = 100, .keys = 130, .depth = 160, .causal = 1});
}

TEST(AttentionCore, GroupedQueriesAndHeadsInStrides) {
  const device::AttentionSizes s{.batch = 2, .heads = 6, .kv_heads = 2, .queries = 20, .keys = 77, .depth = 40};
  for (bool tokens_first : {false, true}) check(picked(40), s, tokens_first);
  check(picked(64, DType::F16),
        {.batch = 2, .heads = 4, .kv_heads = 1, .queries = 66, .keys = 70, .depth = 64, .causal = 1}, true);
}

// The tile's depth is an upper bound; the columns beyond are zero or belong to nothing.
TEST(AttentionCore, ShallowerHeadsThanTheTile) {
  for (int depth : {8, 40}) check(picked(64, DType::F16), {.queries = 30, .keys = 70, .depth = depth});
  check(picked(160), {.queries = 20, .keys = 70, .depth = 136});
  Variant narrow = picked(80);
  narrow.tile.value_columns = 24, narrow.width = 4;  // three blocks per tile of queries, and one column of the last
  check(narrow, {.queries = 20, .keys = 70, .depth = 56});
}

// Large scores of both signs: the highest comes late, weights underflow.
TEST(AttentionCore, SharpScores) {
  check(picked(40), {.queries = 30, .keys = 300, .depth = 40, .scale = 9});
  check(picked(64, DType::F16), {.queries = 30, .keys = 300, .depth = 64, .scale = 0.001f});
}

TEST(AttentionCore, DeepHeads) {
  check(picked(512), {.queries = 65, .keys = 129, .depth = 512});
  check(picked(512), {.queries = 10, .keys = 20, .depth = 264, .causal = 1}, true);
  check(picked(512), {.heads = 2, .kv_heads = 1, .queries = 66, .keys = 67, .depth = 168, .causal = 1}, true);
}

TEST(AttentionCore, HeadsOfStableDiffusion) {
  check(picked(40), {.queries = 256, .keys = 1024, .depth = 40});
  check(picked(512), {.queries = 128, .keys = 256, .depth = 512});
}

TEST(AttentionCore, NansReachThoseWhoSeeThem) { check_nans_reach_those_who_see_them(core_of(picked(40))); }

TEST(AttentionCore, KeysThatWeighNothing) { check_keys_that_weigh_nothing(core_of(picked(40)), picked(40).tile.keys); }

TEST(AttentionCore, TilesFitTheirDevices) {
  for (int depth = 8; depth <= 160; depth += 8)
    for (int limit : {kAdaShared, kHopperShared}) {
      EXPECT_FALSE(attention_tiles(depth, limit).empty());
      for (const AttentionTileShape& tile : attention_tiles(depth, limit)) {
        EXPECT_LE(tile.shared_bytes(), limit) << tile.type();
        EXPECT_EQ(tile.value_columns, depth);
        EXPECT_TRUE(tile.depth >= depth && tile.depth < depth + 16) << tile.type();
      }
    }
  EXPECT_EQ(pick_attention_tile(512, kAdaShared).type(), "AttentionTile<512, 256, 64, 64, 4, 4>");
  EXPECT_EQ(pick_attention_tile(2048, kAdaShared).depth, 0);
}

// The tiles nearest to the register limit.
TEST(AttentionCore, MachineCode) {
  SKIP_WITHOUT_NVRTC();
  for (const auto& [arch, shared] : {std::pair{"sm_89", kAdaShared}, {"sm_90a", kHopperShared}})
    for (int depth : {80, 160}) {
      const AttentionTileShape tile = pick_attention_tile(depth, shared);
      const KernelBinary code = machine_code({"attention", source_of({tile})}, arch);
      const CubinKernel kernel = read_cubin_kernel(code.cubin, kKernelName);
      EXPECT_THAT(check_kernel(kernel, code.log,
                               {.threads = tile.threads(),
                                .blocks = tile.threads() == 128 ? 2 : 1,
                                .contains = {Opcode::Hmma, Opcode::LoadMatrix, Opcode::CopyAsync},
                                .wide_loads = 1,
                                .wide_stores = 1}),
                  testing::IsEmpty())
          << arch << " " << tile.type();
    }
}

}  // namespace
}  // namespace tenon::cuda::test
