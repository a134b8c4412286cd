// attention_grouped on the emulator against sums in double: rows of a group, blocks combined in a cluster and in memory
// with the same bits, segments of keys, masks; bit-identical row by row to whole texts.
#include "tests/cuda/attention_boxes.h"

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
  return "struct " + name + " {\n  using T = Element;\n  static constexpr int kWidth = " + (name == "Q" ? "4" : "8") +
         ";\n  struct Row { const T* at; };\n"
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

const char* core_of(const AttentionGroupedShape& tile) {
  return tile.chunks() ? "attention_chunks" : "attention_grouped";
}
// The tile is for a cache of `capacity` keys, or for the actual number of keys; `even`: as in over_keys.
MakeAttentionCore grouped_core(DType type, const DeviceFacts& facts, int capacity = 0, bool even = true) {
  return [=](const device::AttentionSizes& s) {
    device::AttentionSizes cache = s;
    cache.keys = std::max(s.keys, capacity);
    const AttentionGroupedShape tile =
        over_keys(pick_attention_grouped(s.heads / s.kv_heads * s.queries, s.depth), cache, facts, even);
    const std::string source =
        "#include \"tenon/backend/cuda/device/attention/attention_chunks.h\"\nusing namespace tenon::device;\nusing "
        "Element = " +
        element_name(type) +
        ";\nstruct Params { AttentionSizes sizes; const Element *q, *k, *v; float* y; int tokens_first; };\n" +
        grouped_operand("Q", "q", "heads", "queries") + grouped_operand("K", "k", "kv_heads", "keys") +
        grouped_operand("V", "v", "kv_heads", "keys") + epilogue(1, 8, "p.sizes.depth") +
        "using Tile = " + tile.type() +
        ";\nstatic_assert(Tile::kSharedBytes == " + std::to_string(tile.shared_bytes()) +
        " && Tile::kResident == " + std::to_string(tile.resident()) +
        ");\nKERNEL(Tile::kThreads, Tile::kResident, Params, p) { " + core_of(tile) +
        "<Tile, Q, K, V, Epilogue>(p); }\n";
    const CallNeeds needs = attention_needs(tile, s);
    // Memory where segments of keys are combined; a second run of the kernel finds it as the first left it.
    const auto workspace = std::make_shared<std::vector<float>>(static_cast<size_t>(needs.workspace_bytes / 4) + 1,
                                                                std::numeric_limits<float>::quiet_NaN());
    const auto counters = std::make_shared<std::vector<unsigned>>(static_cast<size_t>(needs.counters) + 1);
    return AttentionCore{tile.type(),
                         type,
                         {"attention", source},
                         needs.shape,
                         [workspace, counters](Device&, const AttentionProblem& x, float* y) {
                           GroupedParams params{x.s, x.q.get(), x.k.get(), x.v.get(), y, x.tokens_first};
                           params.sizes.split.workspace = workspace->data();
                           params.sizes.split.counters = counters->data();
                           const auto bytes = std::as_bytes(std::span(&params, 1));
                           return std::vector<std::byte>(bytes.begin(), bytes.end());
                         }};
  };
}
// Devices with room for every block of a segment, for two blocks, and for one, which then take chunks in turn or have
// one per warp; with clusters and without.
std::vector<DeviceFacts> devices(const device::AttentionSizes& s) {
  const int64_t busy = int64_t{s.batch} * s.kv_heads * (((s.keys + 1023) / 1024 + 1) / 2);
  std::vector<DeviceFacts> all;
  for (const int64_t multiprocessors : {8 * busy, busy, busy / 2})
    for (const bool clusters : {false, true}) {
      DeviceFacts facts = hopper();
      facts.multiprocessors = static_cast<int>(multiprocessors);
      if (!clusters) facts.arch = "sm_89", facts.shared_bytes = 101376;
      all.push_back(facts);
    }
  return all;
}
void check(const device::AttentionSizes& s, DType type = DType::BF16, bool tokens_first = false) {
  const std::vector<DeviceFacts> all = devices(s);
  const std::vector<float> first = check_attention(grouped_core(type, all[0]), s, tokens_first);
  for (const DeviceFacts& facts : all) {
    SCOPED_TRACE(facts.arch + " " + std::to_string(facts.multiprocessors));
    EXPECT_EQ(check_attention(grouped_core(type, facts), s, tokens_first), first);
    if (facts.multiprocessors == all.back().multiprocessors) {
      EXPECT_EQ(check_attention(grouped_core(type, facts, 0, false), s, tokens_first), first);
    }
  }
  for (const size_t i : {1, 5})
    EXPECT_EQ(check_attention(grouped_core(type, all[i], 4096), s, tokens_first), first) << all[i].multiprocessors;
}
// What over_keys makes of Qwen2.5's caches on an H100: [batch, capacity, blocks, turns]; turns 0: a chunk per warp.
TEST(AttentionGrouped, BlocksTakeTurnsWhereNotAllWouldRunAtOnce) {
  const std::vector<std::array<int, 4>> wanted{{1, 768, 8, 1},   {1, 32768, 8, 1}, {8, 768, 8, 1},    {16, 768, 4, 2},
                                               {16, 2048, 8, 1}, {16, 4096, 4, 2}, {16, 32768, 1, 0}, {32, 768, 1, 0},
                                               {64, 768, 1, 0},  {128, 768, 1, 0}};
  for (const auto& [batch, capacity, blocks, turns] : wanted) {
    SCOPED_TRACE(std::to_string(batch) + " x " + std::to_string(capacity));
    const device::AttentionSizes s{
        .batch = batch, .heads = 14, .kv_heads = 2, .queries = 1, .keys = capacity, .depth = 64};
    const AttentionGroupedShape tile = over_keys(pick_attention_grouped(7, 64), s, hopper(), true);
    EXPECT_EQ(tile.blocks, blocks);
    EXPECT_EQ(tile.chunks() ? 0 : tile.turns, turns);
    EXPECT_EQ(tile.cluster, blocks > 1);
    EXPECT_FALSE(over_keys(pick_attention_grouped(7, 64), s, hopper(), false).chunks());
  }
}
// Three stages and two blocks per multiprocessor where there is room; blocks take turns where there is none at all.
TEST(AttentionGrouped, AsManyStagesAsFit) {
  DeviceFacts ada = hopper();
  ada.arch = "sm_89", ada.shared_bytes = 101376;
  const auto type = [](int rows, int depth, const DeviceFacts& facts) {
    return chunk_per_warp(pick_attention_grouped(rows, depth), facts).type();
  };
  EXPECT_EQ(type(7, 64, hopper()), "ChunksTile<64, 8, 3, 2>");
  EXPECT_EQ(type(16, 64, hopper()), "ChunksTile<64, 16, 3, 2>");
  EXPECT_EQ(type(2, 128, hopper()), "ChunksTile<128, 8, 3, 1>");
  EXPECT_EQ(type(7, 64, ada), "ChunksTile<64, 8, 2, 1>");
  const device::AttentionSizes s{.batch = 64, .heads = 16, .kv_heads = 8, .queries = 1, .keys = 768, .depth = 128};
  EXPECT_EQ(over_keys(pick_attention_grouped(2, 128), s, ada, true).type(), "GroupedTile<128, 8, 2, 4, false>");
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
TEST(AttentionGrouped, SeveralSegments) {
  check({.heads = 7, .queries = 1, .keys = 2500, .depth = 64});
  check({.batch = 2, .heads = 4, .kv_heads = 2, .queries = 5, .keys = 1027, .depth = 16, .causal = 1}, DType::F16);
}
TEST(AttentionGrouped, ATokenOfQwen) {
  check({.batch = 2, .heads = 14, .kv_heads = 2, .queries = 1, .keys = 1024, .depth = 64});
}

std::string storing_what_it_gets(std::string source) {
  const std::string added = "y.v[i] += row + 0.5f * (col + i);";
  return source.erase(source.find(added), added.size());
}

// A text's rows, every `step`th and the last, as single-token queries over its keys: one batch entry each.
struct TokenParams {
  device::AttentionSizes sizes;
  const void *q, *k, *v;
  float* y;
  int step;
};

constexpr const char* kTokens = R"(
struct Params { AttentionSizes sizes; const Element *q, *k, *v; float* y; int step; };
struct Keys {
  static constexpr bool kGiven = true;
  DEV static int count(const Params& p, int b) {
    return 1 + b * p.step < p.sizes.keys ? 1 + b * p.step : p.sizes.keys;
  }
};
struct Q {
  static constexpr int kWidth = 4;
  DEV static Frag<float, 4> eval(const Params& p, int r, int col) {
    const int token = Keys::count(p, r / p.sizes.heads) - 1;
    return to_floats(load<Element, 4>(p.q + (token * p.sizes.heads + r % p.sizes.heads) * p.sizes.depth + col));
  }
};
struct InText {
  using T = Element;
  static constexpr int kWidth = 8;
  struct Row { const T* at; };
  DEV static Row row_of(const Params& p, const T* x, int r) {
    return {x + (r % p.sizes.keys * p.sizes.kv_heads + r / p.sizes.keys % p.sizes.kv_heads) * p.sizes.depth};
  }
  DEV static const T* at(const Row& row, int col) { return row.at + col; }
};
struct K : InText { DEV static Row row(const Params& p, int r) { return row_of(p, p.k, r); } };
struct V : InText { DEV static Row row(const Params& p, int r) { return row_of(p, p.v, r); } };
struct Whole : InText {
  DEV static Row row(const Params& p, int r) {
    return {p.q + (r % p.sizes.queries * p.sizes.heads + r / p.sizes.queries) * p.sizes.depth};
  }
};
)";

std::string token_kernel(const std::string& header, DType type, const std::string& tile, const std::string& body) {
  return "#include \"tenon/backend/cuda/device/attention/" + header +
         ".h\"\nusing namespace tenon::device;\nusing Element = " + element_name(type) + ";\n" + kTokens +
         storing_what_it_gets(epilogue(1, 8, "p.sizes.depth")) + "using Tile = " + tile +
         ";\nKERNEL(Tile::kThreads, 1, Params, p) { " + body + "(p); }\n";
}

std::vector<float> results(Device& device, const KernelSource& source, const CallShape& shape, int64_t floats,
                           const std::function<std::vector<std::byte>(float*)>& params) {
  const auto stream = device.make_stream();
  const auto y = poisoned(device, floats * 4);
  device.load(source)->enqueue(*stream, shape, params(static_cast<float*>(y.get())));
  std::vector<float> out(static_cast<size_t>(floats));
  device.copy_out(*stream, out.data(), y.get(), floats * 4);
  return out;
}

// `tokens`: every `step`th row of `text`, by another kernel.
void expect_rows_of(const std::vector<float>& text, const std::vector<float>& tokens, const device::AttentionSizes& s,
                    int batch, int step, const std::string& tile) {
  int64_t different = 0;
  std::string first;
  for (int b = 0; b < batch; ++b)
    for (int h = 0; h < s.heads; ++h) {
      const int token = std::min(b * step, s.keys - 1);
      const float *mine = tokens.data() + (int64_t{b} * s.heads + h) * s.depth,
                  *wanted = text.data() + (int64_t{h} * s.keys + token) * s.depth;
      for (int64_t i = 0; i < s.depth; ++i)
        if (std::memcmp(mine + i, wanted + i, 4) != 0 && different++ == 0)
          first = "the first at token " + std::to_string(token) + ", head " + std::to_string(h) + ", column " +
                  std::to_string(i) + ": " + std::to_string(mine[i]) + " and " + std::to_string(wanted[i]);
    }
  EXPECT_EQ(different, 0) << tile << ", " << first;
}

// `s`: sizes of the text, causal.
void check_tokens_against_text(device::AttentionSizes s, DType type = DType::BF16, int step = 1) {
  SCOPED_TRACE(std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " " + std::to_string(s.keys) + " x " +
               std::to_string(s.depth));
  s.queries = s.keys, s.causal = 1;
  if (s.scale == 1) s.scale = 1.3f / std::sqrt(static_cast<float>(s.depth));
  Emulator device;
  const int64_t d = s.depth;
  const RandomTensor q(device, type, s.heads * s.keys * d, 1), k(device, type, s.kv_heads * s.keys * d, 2),
      v(device, type, s.kv_heads * s.keys * d, 3);
  DeviceFacts facts = hopper();
  facts.one_order = true;
  const AttentionWgmmaShape whole = pick_attention_wgmma(s, facts);
  const BoxKernel kernel = kernel_of(whole);
  const std::vector<float> text =
      results(device, {"attention", storing_what_it_gets(kernel.source(type, 8))},
              attention_needs(whole, s, facts.multiprocessors).shape, s.heads * s.keys * d, [&](float* y) {
                return bytes_of(box_params(device, {s, q.memory, k.memory, v.memory, true}, kernel.box_keys, y));
              });

  device::AttentionSizes one = s;
  one.queries = 1, one.causal = 0, one.batch = (s.keys - 2) / step + 2;
  const auto run = [&](const std::string& source, const CallShape& shape, const device::AttentionSizes& sizes) {
    const int64_t floats = int64_t{sizes.batch} * s.heads * sizes.queries * d;
    return results(device, {"attention", source}, shape, floats, [&](float* y) {
      const TokenParams params{sizes, q.memory.get(), k.memory.get(), v.memory.get(), y, step};
      const auto bytes = std::as_bytes(std::span(&params, 1));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    });
  };
  const AttentionGroupedShape rows = pick_attention_grouped(s.heads / s.kv_heads, s.depth);
  for (const AttentionGroupedShape& tile : {over_keys(rows, one, facts, false), chunk_per_warp(rows, facts)}) {
    const CallNeeds needs = attention_needs(tile, one);
    const Meeting meeting(device, needs, one.split);
    const std::string core = core_of(tile);
    const std::vector<float> tokens =
        run(token_kernel(core, type, tile.type(), core + "<Tile, Q, K, V, Epilogue, Keys>"), needs.shape, one);
    expect_rows_of(text, tokens, s, one.batch, step, whole.type() + ", " + tile.type());
  }
  const AttentionTileShape stands_in = pick_attention_tile(s.depth, 101376, attention_order(s, facts));
  const std::vector<float> by_mma =
      run(token_kernel("attention_mma", type, stands_in.type(), "attention_mma<Tile, Whole, K, V, Epilogue>"),
          attention_needs(stands_in, s).shape, s);
  EXPECT_EQ(std::memcmp(by_mma.data(), text.data(), text.size() * 4), 0) << stands_in.type();
}

TEST(AttentionInOneOrder, TokensHaveTheBitsOfTexts) {
  for (const int keys : {1, 17, 128, 129, 300})
    check_tokens_against_text({.heads = 4, .kv_heads = 2, .keys = keys, .depth = 64});
  check_tokens_against_text({.heads = 14, .kv_heads = 2, .keys = 150, .depth = 64}, DType::BF16, 7);
  check_tokens_against_text({.heads = 2, .kv_heads = 1, .keys = 1100, .depth = 64}, DType::BF16, 23);
  check_tokens_against_text({.heads = 1, .kv_heads = 1, .keys = 2300, .depth = 16}, DType::BF16, 190);
}
TEST(AttentionInOneOrder, OtherDepths) {
  check_tokens_against_text({.heads = 4, .kv_heads = 2, .keys = 300, .depth = 128}, DType::BF16, 3);
  check_tokens_against_text({.heads = 1, .kv_heads = 1, .keys = 2300, .depth = 128}, DType::BF16, 190);
  check_tokens_against_text({.heads = 4, .kv_heads = 2, .keys = 300, .depth = 32}, DType::BF16, 3);
  check_tokens_against_text({.heads = 2, .kv_heads = 1, .keys = 140, .depth = 16}, DType::BF16, 3);
}
// f16 rounds small weights to fewer bits, whatever they are relative to.
TEST(AttentionInOneOrder, F16) {
  check_tokens_against_text({.heads = 4, .kv_heads = 2, .keys = 300, .depth = 64}, DType::F16, 3);
  check_tokens_against_text({.heads = 4, .kv_heads = 2, .keys = 300, .depth = 64, .scale = 0.5f}, DType::F16, 3);
  check_tokens_against_text({.heads = 2, .kv_heads = 1, .keys = 1100, .depth = 128}, DType::F16, 41);
}
TEST(AttentionInOneOrder, SharpScores) {
  check_tokens_against_text({.heads = 4, .kv_heads = 2, .keys = 300, .depth = 64, .scale = 2}, DType::BF16, 3);
  check_tokens_against_text({.heads = 2, .kv_heads = 1, .keys = 1100, .depth = 64, .scale = 2}, DType::BF16, 41);
}

}  // namespace
}  // namespace tenon::cuda::test
