// attention_deep on the emulator against sums in double: tails of queries and keys, causal masks, grouped queries,
// strided heads, segments of keys that are combined, NaNs; its machine code.
#include "tests/cuda/attention_boxes.h"

namespace tenon::cuda::test {
namespace {

struct Variant {
  int splits = 0;  ///< the backend's choice unless set
  DType type = DType::F16;
  int depth = 0;  ///< of the tile; the head's unless set
};

// Where the segments of keys of each launch are combined.
using Meetings = std::vector<std::pair<std::unique_ptr<Emulator>, std::unique_ptr<Meeting>>>;

std::vector<std::byte> params_of(const AttentionDeepShape& tile, Meetings& meetings, Device& device,
                                 const AttentionProblem& x, float* y) {
  BoxParams params = box_params(device, x, tile.keys, y);
  auto memory = std::make_unique<Emulator>();
  auto meeting = std::make_unique<Meeting>(*memory, attention_needs(tile, x.s), params.sizes.split);
  meetings.emplace_back(std::move(memory), std::move(meeting));
  return bytes_of(params);
}

MakeAttentionCore core_of(const Variant& v, std::shared_ptr<Meetings> meetings = std::make_shared<Meetings>()) {
  return [v, meetings](device::AttentionSizes s) {
    AttentionDeepShape tile = pick_attention_deep(v.depth ? v.depth : s.depth, hopper());
    const int splits = v.splits ? v.splits : attention_deep_splits(tile, s, hopper().multiprocessors);
    s.split.splits = splits;
    return AttentionCore{tile.type() + " x" + std::to_string(splits),
                         v.type,
                         {"attention", kernel_of(tile).source(v.type, 8)},
                         attention_needs(tile, s).shape,
                         [tile, splits, meetings](Device& device, AttentionProblem x, float* y) {
                           x.s.split.splits = splits;
                           return params_of(tile, *meetings, device, x, y);
                         }};
  };
}
void check(const Variant& v, const device::AttentionSizes& s, bool tokens_first = false) {
  const auto meetings = std::make_shared<Meetings>();
  check_attention(core_of(v, meetings), s, tokens_first);
  EXPECT_EQ(meetings->size(), 2u);
  for (const auto& [memory, meeting] : *meetings) EXPECT_TRUE(meeting->counters_are_zero());
}

TEST(AttentionDeep, HeadsOf512) {
  check({1}, {.queries = 130, .keys = 256, .depth = 512});
  check({.type = DType::BF16}, {.queries = 128, .keys = 512, .depth = 512});
  check({.type = DType::BF16}, {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 70, .keys = 65, .depth = 512}, true);
}

// More runs than tiles, so some are empty. Runs of several tiles.
TEST(AttentionDeep, SegmentsOfKeysMeet) {
  check({2}, {.queries = 65, .keys = 300, .depth = 512});
  check({3}, {.heads = 2, .kv_heads = 2, .queries = 20, .keys = 640, .depth = 384}, true);
  check({4}, {.queries = 20, .keys = 70, .depth = 264});
  check({3, DType::BF16}, {.queries = 140, .keys = 400, .depth = 512, .causal = 1});
  check({2}, {.queries = 30, .keys = 300, .depth = 512, .scale = 9});
}

TEST(AttentionDeep, TailsMasksAndShallowerHeads) {
  for (int queries : {1, 129})
    for (int keys : {1, 64, 129}) check({1}, {.queries = queries, .keys = keys, .depth = 320});
  check({1}, {.queries = 40, .keys = 200, .depth = 384, .causal = 1});
  check({1, DType::BF16}, {.queries = 129, .keys = 129, .depth = 512, .causal = 1});
  for (int depth : {40, 264, 392}) check({1, DType::F16, 512}, {.queries = 20, .keys = 70, .depth = depth});
}

TEST(AttentionDeep, NansReachThoseWhoSeeThem) {
  check_nans_reach_those_who_see_them(core_of({1, DType::F16, 512}));
  check_nans_reach_those_who_see_them(core_of({2, DType::BF16, 512}));
}

TEST(AttentionDeep, KeysThatWeighNothing) { check_keys_that_weigh_nothing(core_of({1, DType::F16, 512}), 64); }

// One head of 4096 tokens fills an H200; a segment of keys has at least four tiles.
TEST(AttentionDeep, Splits) {
  const AttentionDeepShape tile = pick_attention_deep(512, hopper());
  EXPECT_EQ(tile.type(), "AttentionDeepTile<512, 64>");
  EXPECT_EQ(attention_deep_splits(tile, {.queries = 4096, .keys = 4096, .depth = 512}, 132), 2);
  EXPECT_EQ(attention_deep_splits(tile, {.queries = 1024, .keys = 1024, .depth = 512}, 132), 4);
  EXPECT_EQ(attention_deep_splits(tile, {.queries = 64, .keys = 128, .depth = 512}, 132), 1);
  EXPECT_EQ(attention_deep_splits(tile, {.queries = 16384, .keys = 16384, .depth = 512}, 132), 1);
  EXPECT_EQ(pick_attention_deep(640, hopper()).depth, 0);
  EXPECT_EQ(pick_attention_deep(256, hopper()).depth, 0);
}

TEST(AttentionDeep, MachineCode) {
  SKIP_WITHOUT_NVRTC();
  for (int depth : {384, 512}) expect_machine_code(kernel_of(pick_attention_deep(depth, hopper())), 0.9);
}

}  // namespace
}  // namespace tenon::cuda::test
