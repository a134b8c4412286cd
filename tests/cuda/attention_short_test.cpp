// attention_short on the emulator against sums in double; which problems it takes, and in how many parts.
#include "tests/cuda/attention_boxes.h"

namespace tenon::cuda::test {
namespace {

struct Variant {
  AttentionShortShape tile = {.depth = 0};  ///< the backend's choice unless it has a depth
  DType type = DType::F16;
  int width = 8;  ///< of the epilogue
  int multiprocessors = 132;
  int parts = 0;  ///< if set, instead of the backend's choice
};

MakeAttentionCore core_of(const Variant& v) {
  return [v](const device::AttentionSizes& s) {
    const AttentionShortShape tile = v.tile.depth ? v.tile : pick_attention_short(s, hopper());
    CallShape shape = attention_needs(tile, s, v.multiprocessors).shape;
    if (v.parts) shape.grid_y = v.parts;
    return box_core(kernel_of(tile), v.type, v.width, shape);
  };
}
void check(const Variant& v, const device::AttentionSizes& s, bool tokens_first = false) {
  check_attention(core_of(v), s, tokens_first);
}

TEST(AttentionShort, PicturesOf257Tokens) {
  check({}, {.heads = 24, .kv_heads = 24, .queries = 257, .keys = 257, .depth = 64}, true);
  check({.type = DType::BF16}, {.batch = 2, .heads = 2, .kv_heads = 2, .queries = 257, .keys = 261, .depth = 64}, true);
}

// Blocks that process several heads, in parts: buffers and barriers are reused.
TEST(AttentionShort, Walks) {
  for (int groups : {1, 2, 3})
    for (int parts : {1, 2, 3})
      check({.tile = {48, 40, groups, 128, 3 - groups / 2, groups},
             .type = DType::BF16,
             .multiprocessors = 1,
             .parts = parts},
            {.batch = 2, .heads = 3, .kv_heads = 3, .queries = 150, .keys = 100, .depth = 40}, true);
}

TEST(AttentionShort, GroupedQueriesAndHeadsInStrides) {
  for (bool tokens_first : {false, true})
    check({.multiprocessors = 1}, {.batch = 2, .heads = 6, .kv_heads = 2, .queries = 70, .keys = 130, .depth = 64},
          tokens_first);
}

TEST(AttentionShort, TailsOfQueriesAndKeys) {
  for (int keys : {129, 160, 161, 177, 193, 224, 225, 241, 272})
    for (int queries : {1, 63, 72}) check({}, {.queries = queries, .keys = keys, .depth = 64});
  for (int depth : {8, 24, 40, 56}) check({.width = 4}, {.queries = 20, .keys = 150, .depth = depth});
  for (int keys : {65, 77, 96})  // in one part
    for (int queries : {1, 72, 230})
      check({.tile = {48, 40, 3, 96, 2, 2}}, {.queries = queries, .keys = keys, .depth = 40});
}

// Large scores of both signs: weights underflow.
TEST(AttentionShort, SharpScores) {
  check({}, {.queries = 70, .keys = 257, .depth = 64, .scale = 9});
  check({.type = DType::BF16}, {.queries = 70, .keys = 200, .depth = 40, .scale = 9});
  check({}, {.queries = 30, .keys = 257, .depth = 64, .scale = 0.001f});
}

TEST(AttentionShort, NansReachThoseWhoSeeThem) { check_nans_reach_those_who_see_them(core_of({}), false); }

// A prompt's 77 keys, for which blocks walk over several heads.
TEST(AttentionShort, FewKeysInOnePart) {
  for (DType type : {DType::F16, DType::BF16})
    check({.tile = {48, 40, 3, 96, 2, 2}, .type = type, .multiprocessors = 2},
          {.batch = 2, .heads = 4, .kv_heads = 2, .queries = 330, .keys = 77, .depth = 40}, true);
  check({.tile = {64, 64, 3, 96, 2, 2}}, {.queries = 70, .keys = 80, .depth = 64, .scale = 9});
}

TEST(AttentionShort, Problems) {
  const auto tile = [](const device::AttentionSizes& s) {
    const AttentionShortShape shape = pick_attention_short(s, hopper());
    return shape.depth ? shape.type() : "";
  };
  EXPECT_EQ(tile({.heads = 24, .kv_heads = 24, .queries = 257, .keys = 257, .depth = 64}),
            "AttentionShortTile<64, 64, 3, 272, 2, 2>");
  EXPECT_EQ(tile({.queries = 197, .keys = 197, .depth = 64}), "AttentionShortTile<64, 64, 3, 208, 2, 2>");
  EXPECT_EQ(tile({.queries = 20, .keys = 150, .depth = 40}), "AttentionShortTile<48, 40, 3, 160, 2, 2>");
  for (int keys = 129; keys <= 272; ++keys) EXPECT_NE(tile({.queries = 64, .keys = keys, .depth = 64}), "") << keys;
  EXPECT_EQ(tile({.batch = 2, .heads = 8, .kv_heads = 8, .queries = 4096, .keys = 77, .depth = 40}),
            "AttentionShortTile<48, 40, 3, 96, 2, 2>");
  // Too few queries, too few keys, too many, too deep, causal.
  EXPECT_EQ(tile({.queries = 4096, .keys = 77, .depth = 40}), "");
  EXPECT_EQ(tile({.queries = 128, .keys = 128, .depth = 64}), "");
  EXPECT_EQ(tile({.queries = 273, .keys = 273, .depth = 64}), "");
  EXPECT_EQ(tile({.queries = 256, .keys = 256, .depth = 160}), "");
  EXPECT_EQ(tile({.queries = 257, .keys = 257, .depth = 64, .causal = 1}), "");
}

// A block per multiprocessor processes many heads; few heads are divided among more blocks.
TEST(AttentionShort, Parts) {
  using Grid = std::pair<int64_t, int64_t>;
  const auto grid = [](int batch) {
    const device::AttentionSizes s{
        .batch = batch, .heads = 24, .kv_heads = 24, .queries = 257, .keys = 257, .depth = 64};
    const CallShape shape = attention_needs(pick_attention_short(s, hopper()), s, 132).shape;
    return Grid(shape.grid_x, shape.grid_y);
  };
  EXPECT_EQ(grid(256), Grid(132, 1));
  EXPECT_EQ(grid(8), Grid(66, 2));
  EXPECT_EQ(grid(1), Grid(24, 5));
}

TEST(AttentionShort, MachineCode) {
  SKIP_WITHOUT_NVRTC();
  for (const auto& [depth, keys] : {std::pair{64, 257}, {64, 197}, {64, 250}, {40, 272}, {16, 160}, {64, 150}}) {
    const AttentionShortShape tile = pick_attention_short({.queries = keys, .keys = keys, .depth = depth}, hopper());
    ASSERT_GT(tile.depth, 0);
    expect_machine_code(kernel_of(tile));
  }
}

}  // namespace
}  // namespace tenon::cuda::test
