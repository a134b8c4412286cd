// attention_grouped on the emulator beside sums in double: rows of a group, blocks that meet in a cluster and in memory
// with the same bits, runs of keys, masks.
#include <gmock/gmock.h>

#include "tenon/backend/cuda/attention/attention_launch.h"
#include "tests/cuda/attention_problem.h"

namespace tenon::cuda::test {
namespace {

struct GroupedParams {
  device::AttentionSizes sizes;
  const void *q, *k, *v;
  float* y;
  int tokens_first;
};

std::string grouped_operand(const std::string& name, const std::string& pointer, const std::string& heads,
                            const std::string& tokens) {
  return "struct " + name +
         " {\n  using T = Element;\n  static constexpr int kRun = 8;\n  struct Row { const T* at; };\n"
         "  DEV static Row row(const Params& p, int r) {\n    const int heads = p.sizes." +
         heads + ", tokens = p.sizes." + tokens + R"(;
    if (r < 0 || r >= p.sizes.batch * heads * tokens) trap();
    const int b = r / tokens / heads, h = r / tokens % heads, s = r % tokens;
    return {p.)" +
         pointer + R"( + static_cast<int64_t>(p.tokens_first ? (b * tokens + s) * heads + h : r) * p.sizes.depth};
  }
  DEV static const T* at(const Row& row, int col) { return row.at + col; }
  DEV static Frag<float, 4> eval(const Params& p, int r, int col) { return to_floats(load<T, 4>(at(row(p, r), col))); }
};
)";
}

// The tile is that of a cache for `capacity` keys, or for those that there are.
MakeAttentionCore grouped_core(DType type, bool clusters, int capacity = 0) {
  return [=](const device::AttentionSizes& s) {
    const AttentionGroupedShape tile = over_keys(pick_attention_grouped(s.heads / s.kv_heads * s.queries, s.depth),
                                                 std::max(s.keys, capacity), clusters);
    const std::string text =
        "#include \"tenon/backend/cuda/device/attention_grouped.h\"\nusing namespace tenon::device;\nusing Element = " +
        element_name(type) +
        ";\nstruct Params { AttentionSizes sizes; const Element *q, *k, *v; float* y; int tokens_first; };\n" +
        grouped_operand("Q", "q", "heads", "queries") + grouped_operand("K", "k", "kv_heads", "keys") +
        grouped_operand("V", "v", "kv_heads", "keys") + epilogue(1, 8, "p.sizes.depth") +
        "using Tile = " + tile.type() +
        ";\nstatic_assert(Tile::kSharedBytes == " + std::to_string(tile.shared_bytes()) +
        ");\nKERNEL(Tile::kThreads, Tile::kResident, Params, p) { attention_grouped<Tile, Q, K, V, Epilogue>(p); }\n";
    const CoreLaunch launch = attention_launch(tile, s);
    // Memory where runs of keys meet, which a second run of the kernel finds as the first left it.
    const auto workspace = std::make_shared<std::vector<float>>(static_cast<size_t>(launch.workspace_bytes / 4) + 1,
                                                                std::numeric_limits<float>::quiet_NaN());
    const auto counters = std::make_shared<std::vector<unsigned>>(static_cast<size_t>(launch.counters) + 1);
    return AttentionCore{tile.type(),
                         type,
                         {"attention", text},
                         launch.shape,
                         [workspace, counters](Device&, const AttentionProblem& x, float* y) {
                           GroupedParams params{x.s, x.q.get(), x.k.get(), x.v.get(), y, x.tokens_first};
                           params.sizes.split.workspace = workspace->data();
                           params.sizes.split.counters = counters->data();
                           const auto bytes = std::as_bytes(std::span(&params, 1));
                           return std::vector<std::byte>(bytes.begin(), bytes.end());
                         }};
  };
}
void check(const device::AttentionSizes& s, DType type = DType::BF16, bool tokens_first = false) {
  const std::vector<float> in_memory = check_attention(grouped_core(type, false), s, tokens_first);
  EXPECT_EQ(check_attention(grouped_core(type, true), s, tokens_first), in_memory);
  EXPECT_EQ(check_attention(grouped_core(type, true, 4096), s, tokens_first), in_memory);
}

TEST(AttentionGrouped, EveryDepthAndTail) {
  for (const int depth : {16, 32, 64, 128})
    for (const int keys : {1, 31, 256, 257, 600}) check({.heads = 7, .queries = 1, .keys = keys, .depth = depth});
}
TEST(AttentionGrouped, RowsOfAGroup) {
  for (int queries = 1; queries <= 16; ++queries)
    check({.heads = 2, .kv_heads = 2, .queries = queries, .keys = 70, .depth = 64, .causal = 1});
  check({.batch = 2, .heads = 6, .kv_heads = 2, .queries = 5, .keys = 300, .depth = 64, .causal = 1}, DType::F16, true);
  check({.batch = 3, .heads = 14, .kv_heads = 2, .queries = 2, .keys = 520, .depth = 128}, DType::BF16, true);
}
TEST(AttentionGrouped, SharpScores) {
  check({.heads = 7, .queries = 1, .keys = 700, .depth = 64, .scale = 9});
  check({.heads = 7, .queries = 1, .keys = 700, .depth = 64, .scale = 0.001f}, DType::F16);
}
TEST(AttentionGrouped, SeveralRuns) {
  check({.heads = 7, .queries = 1, .keys = 2500, .depth = 64});
  check({.batch = 2, .heads = 4, .kv_heads = 2, .queries = 5, .keys = 1027, .depth = 16, .causal = 1}, DType::F16);
}
TEST(AttentionGrouped, ATokenOfQwen) {
  check({.batch = 2, .heads = 14, .kv_heads = 2, .queries = 1, .keys = 1024, .depth = 64});
}

}  // namespace
}  // namespace tenon::cuda::test
