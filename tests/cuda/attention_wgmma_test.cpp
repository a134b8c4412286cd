// attention_wgmma on the emulator against sums in double: every tile that the backend chooses and others, tails of
// queries and keys, causal masks, grouped queries, strided heads, NaNs; its machine code.
#include "tests/cuda/attention_boxes.h"

namespace tenon::cuda::test {
namespace {

struct Variant {
  AttentionWgmmaShape tile = {.depth = 0};  ///< the backend's choice unless it has a depth
  DType type = DType::F16;
  int width = 8;  ///< of the epilogue
  int multiprocessors = hopper().multiprocessors;
};

MakeAttentionCore core_of(const Variant& v) {
  return [v](const device::AttentionSizes& s) {
    const AttentionWgmmaShape tile = v.tile.depth ? v.tile : pick_attention_wgmma(s, hopper());
    return box_core(kernel_of(tile), v.type, v.width, attention_needs(tile, s, v.multiprocessors).shape);
  };
}
void check(const Variant& v, const device::AttentionSizes& s, bool tokens_first = false) {
  check_attention(core_of(v), s, tokens_first);
}

const AttentionWgmmaShape kNarrow{48, 40, 2, 128, 2, 1, true};

TEST(AttentionWgmma, SelfAttention) {
  check({}, {.batch = 2, .heads = 2, .kv_heads = 2, .queries = 192, .keys = 192, .depth = 40});
  check({.type = DType::BF16}, {.heads = 2, .kv_heads = 2, .queries = 128, .keys = 257, .depth = 64});
  check({}, {.queries = 130, .keys = 128, .depth = 80});
  check({}, {.queries = 70, .keys = 300, .depth = 160});
  check({{160, 160, 2, 64, 2}}, {.queries = 130, .keys = 140, .depth = 160});
}

// Three warpgroups, two blocks per multiprocessor, queries that stay in shared memory, alternating warpgroups.
TEST(AttentionWgmma, OtherTiles) {
  check({kNarrow}, {.queries = 300, .keys = 700, .depth = 40});
  check({{48, 40, 3, 128, 2, 1, true}}, {.queries = 200, .keys = 520, .depth = 40});
  check({{64, 64, 3, 128, 2, 1, false}, DType::BF16}, {.queries = 200, .keys = 300, .depth = 64});
  check({{128, 128, 3, 80, 3, 1, true}, DType::BF16}, {.queries = 330, .keys = 250, .depth = 128});
  check({{80, 80, 3, 96, 3, 1, true}}, {.queries = 200, .keys = 300, .depth = 80, .causal = 1});
  check({{48, 40, 2, 64, 4, 2}}, {.queries = 130, .keys = 330, .depth = 40});
  check({{128, 128, 2, 128, 2, 1, true}}, {.queries = 100, .keys = 200, .depth = 128, .causal = 1});
  check({{96, 96, 2, 128, 2}, DType::BF16, 4}, {.queries = 70, .keys = 150, .depth = 96});
  check({{256, 256, 1, 64, 2}}, {.queries = 20, .keys = 150, .depth = 200});
}

// Sums over chunks, of one segment and of several.
TEST(AttentionWgmma, InOneOrder) {
  for (const int keys : {64, 128}) {
    check({{64, 64, 1, keys, 2, 1, false, 1}, DType::BF16}, {.queries = 100, .keys = 700, .depth = 64});
    check({{64, 64, 2, keys, 2, 1, true, 2}}, {.queries = 130, .keys = 2500, .depth = 64});
  }
  check({{64, 64, 1, 64, 2, 1, false, 2}, DType::BF16}, {.queries = 30, .keys = 1100, .depth = 64, .scale = 9});
  check({{128, 128, 2, 64, 2, 1, false, 1}, DType::BF16}, {.queries = 200, .keys = 330, .depth = 128, .causal = 1});
  check({{128, 128, 2, 64, 2, 1, false, 2}}, {.queries = 70, .keys = 1100, .depth = 128, .causal = 1});
}

TEST(AttentionWgmma, TailsOfQueriesAndKeys) {
  for (int queries : {1, 63, 129})
    for (int keys : {1, 77, 129, 257})
      for (int depth : {40, 80})
        check({}, {.heads = 2, .kv_heads = 2, .queries = queries, .keys = keys, .depth = depth});
}

TEST(AttentionWgmma, CausalMasks) {
  for (const auto& [queries, keys] : {std::pair{129, 129}, {40, 200}, {1, 70}, {200, 264}})
    check({kNarrow}, {.queries = queries, .keys = keys, .depth = 40, .causal = 1});
  check({.type = DType::BF16}, {.queries = 100, .keys = 130, .depth = 160, .causal = 1});
}

TEST(AttentionWgmma, GroupedQueriesAndHeadsInStrides) {
  const device::AttentionSizes s{.batch = 2, .heads = 6, .kv_heads = 2, .queries = 20, .keys = 77, .depth = 40};
  for (bool tokens_first : {false, true}) check({.type = DType::BF16}, s, tokens_first);
  check({}, {.batch = 2, .heads = 4, .kv_heads = 1, .queries = 66, .keys = 70, .depth = 64, .causal = 1}, true);
}

// Columns beyond the depth are zero or belong to nothing.
TEST(AttentionWgmma, ShallowerHeadsThanTheTile) {
  for (int depth : {8, 24, 40}) check({{64, 64, 1, 64, 2}}, {.queries = 30, .keys = 70, .depth = depth});
  check({}, {.queries = 20, .keys = 70, .depth = 136});
  for (int depth : {16, 32, 48}) check({}, {.queries = 20, .keys = 70, .depth = depth});
}

// Tiles with unequal numbers of queries, with alternation, masks and tails; fewer multiprocessors than tiles.
TEST(AttentionWgmma, UnequalTiles) {
  const AttentionWgmmaShape three{48, 40, 3, 64, 3, 1, true};
  EXPECT_EQ(attention_query_tiles(three, 8 * 64, 1, 1), 3);
  EXPECT_EQ(attention_query_tiles(three, 5 * 64, 2, 132), 2);
  EXPECT_EQ(attention_query_tiles(three, 4096, 16, 132), 24);
  EXPECT_EQ(attention_query_tiles({80, 80, 2}, 1024, 16, 132), 8);
  check({.tile = three, .multiprocessors = 1}, {.queries = 8 * 64, .keys = 130, .depth = 40});
  check({.tile = three}, {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 257, .keys = 257, .depth = 40, .causal = 1},
        true);
  check({.tile = {48, 40, 4, 64, 3, 1, true}}, {.heads = 3, .kv_heads = 3, .queries = 450, .keys = 200, .depth = 40},
        true);
  check({.tile = {64, 64, 3, 64, 2}}, {.heads = 3, .kv_heads = 3, .queries = 230, .keys = 70, .depth = 64});
  check({.tile = {48, 40, 2, 64, 2, 1, true}}, {.heads = 2, .kv_heads = 2, .queries = 150, .keys = 200, .depth = 40});
}

// What was fastest on an H200.
TEST(AttentionWgmma, TilesByMeasurement) {
  const auto tile = [](int batch, int heads, int queries, int keys, int depth) {
    return pick_attention_wgmma(
               {.batch = batch, .heads = heads, .kv_heads = heads, .queries = queries, .keys = keys, .depth = depth},
               hopper())
        .type();
  };
  EXPECT_EQ(tile(2, 8, 4096, 4096, 40), "AttentionWgmmaTile<48, 40, 4, 64, 3, 1, true>");
  EXPECT_EQ(tile(2, 8, 1024, 1024, 80), "AttentionWgmmaTile<80, 80, 2, 128, 2, 1, true>");
  EXPECT_EQ(tile(2, 8, 256, 256, 160), "AttentionWgmmaTile<160, 160, 1, 128, 2, 1, false>");
  EXPECT_EQ(tile(2, 8, 4096, 77, 40), "AttentionWgmmaTile<48, 40, 1, 80, 1, 3, false>");
  EXPECT_EQ(tile(2, 8, 4096, 4096, 80), "AttentionWgmmaTile<80, 80, 3, 96, 3, 1, true>");
  EXPECT_EQ(tile(2, 8, 4096, 4096, 96), "AttentionWgmmaTile<96, 96, 3, 96, 3, 1, true>");
  EXPECT_EQ(tile(1, 30, 4224, 4224, 128), "AttentionWgmmaTile<128, 128, 3, 80, 3, 1, true>");
  EXPECT_EQ(tile(1, 30, 1152, 1152, 128), "AttentionWgmmaTile<128, 128, 3, 80, 3, 1, true>");
}

// Large scores of both signs: the highest comes late, weights underflow.
TEST(AttentionWgmma, SharpScores) {
  check({kNarrow}, {.queries = 30, .keys = 300, .depth = 40, .scale = 9});
  check({{48, 40, 2, 128, 2, 1}, DType::BF16}, {.queries = 30, .keys = 300, .depth = 40, .scale = 9});
  check({}, {.queries = 30, .keys = 300, .depth = 64, .scale = 0.001f});
}

TEST(AttentionWgmma, HeadsOfStableDiffusion) {
  for (const auto& [depth, tokens] : {std::pair{40, 1024}, {80, 512}, {160, 256}, {160, 64}}) {
    const int heads = tokens > 256 ? 1 : 2;
    check({}, {.heads = heads, .kv_heads = heads, .queries = std::min(tokens, 256), .keys = tokens, .depth = depth});
    check({}, {.heads = heads, .kv_heads = heads, .queries = std::min(tokens, 256), .keys = 77, .depth = depth}, true);
  }
}

TEST(AttentionWgmma, NansReachThoseWhoSeeThem) {
  check_nans_reach_those_who_see_them(core_of({}));
  check_nans_reach_those_who_see_them(core_of({{48, 40, 2, 128, 2, 1}, DType::BF16}));
}

TEST(AttentionWgmma, KeysThatWeighNothing) {
  check_keys_that_weigh_nothing(core_of({kNarrow}), kNarrow.keys);
  check_keys_that_weigh_nothing(core_of({{48, 40, 2, 128, 2, 1}, DType::BF16}), 128);
}

TEST(AttentionWgmma, MachineCode) {
  SKIP_WITHOUT_NVRTC();
  for (int depth : {8, 40, 64, 80, 96, 128, 160, 256})
    for (int keys : {77, 256, 4096}) {
      const AttentionWgmmaShape tile = pick_attention_wgmma(
          {.batch = 2, .heads = 8, .kv_heads = 8, .queries = keys, .keys = keys, .depth = depth}, hopper());
      ASSERT_GT(tile.depth, 0);
      expect_machine_code(kernel_of(tile));
    }
  DeviceFacts in_order = hopper();
  in_order.one_order = true;
  for (int depth : {16, 64, 128})
    for (int keys : {77, 512, 1024, 4096})
      for (int heads : {2, 14})
        expect_machine_code(kernel_of(pick_attention_wgmma(
            {.batch = 4, .heads = heads, .kv_heads = 2, .queries = keys, .keys = keys, .depth = depth, .causal = 1},
            in_order)));
}

}  // namespace
}  // namespace tenon::cuda::test
