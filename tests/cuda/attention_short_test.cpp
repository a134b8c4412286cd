// attention_short on the emulator beside sums in double.
#include <gmock/gmock.h>

#include "attention_problem.h"
#include "nvrtc_environment.h"
#include "tenon/backend/cuda/attention_launch.h"
#include "tenon/backend/cuda/driver/cubin.h"

namespace tenon::cuda::test {
namespace {

constexpr DeviceFacts hopper() {
  DeviceFacts facts;
  facts.arch = "sm_90a", facts.multiprocessors = 132, facts.shared_bytes = 232448;
  return facts;
}

struct Params {
  TensorMap q, k, v;
  device::AttentionSizes sizes;
  float* y;
};

std::string text_of(const AttentionShortShape& tile, DType type, int run) {
  std::string text =
      "#include \"tenon/device/attention_short.h\"\nusing namespace tenon::device;\nstruct Params { TensorMap q, k, v; "
      "AttentionSizes sizes; float* y; };\n";
  for (const auto& [name, map] : {std::pair{"Q", "q"}, {"K", "k"}, {"V", "v"}})
    text += std::string("struct ") + name + " { using T = " + element_name(type) +
            "; DEV static const TensorMap& map(const Params& p) { return p." + map + "; } };\n";
  return text + epilogue(1, run, "p.sizes.depth") + "using Tile = " + tile.type() +
         ";\nstatic_assert(Tile::kSharedBytes == " + std::to_string(tile.shared_bytes()) +
         " && Tile::kThreads == " + std::to_string(tile.threads()) +
         ");\nKERNEL(Tile::kThreads, Tile::kBlocks, Params, p) { attention_short<Tile, Q, K, V, Epilogue>(p); }\n";
}

std::vector<std::byte> params_of(const AttentionShortShape& tile, Device& device, const AttentionProblem& x, float* y) {
  const device::AttentionSizes& s = x.s;
  const auto map = [&](const std::shared_ptr<void>& memory, int heads, int tokens, int box) {
    const int64_t d = s.depth;
    const HeadStrides strides =
        x.tokens_first ? HeadStrides{heads * d, d, tokens * heads * d} : HeadStrides{d, tokens * d, heads * tokens * d};
    return device.encode(head_box(memory.get(), strides, s.batch, heads, tokens, s.depth, box));
  };
  const Params params{map(x.q, s.heads, s.queries, 64), map(x.k, s.kv_heads, s.keys, tile.keys / 2),
                      map(x.v, s.kv_heads, s.keys, tile.keys / 2), s, y};
  const auto bytes = std::as_bytes(std::span(&params, 1));
  return {bytes.begin(), bytes.end()};
}

struct Variant {
  AttentionShortShape tile = {};
  DType type = DType::F16;
  int run = 8;  ///< of the epilogue
  int multiprocessors = 132;
  int parts = 0;  ///< if any: instead of what the backend takes
};

MakeAttentionCore core_of(const Variant& v) {
  return [v](const device::AttentionSizes& s) {
    LaunchShape shape = attention_launch(v.tile, s, v.multiprocessors).shape;
    if (v.parts) shape.grid_y = static_cast<unsigned>(v.parts);
    return AttentionCore{
        v.tile.type(),
        v.type,
        {"attention", text_of(v.tile, v.type, v.run)},
        shape,
        [v](Device& device, const AttentionProblem& x, float* y) { return params_of(v.tile, device, x, y); }};
  };
}
void check(const Variant& v, const device::AttentionSizes& s, bool tokens_first = false) {
  check_attention(core_of(v), s, tokens_first);
}

TEST(AttentionShort, Tokens257) {
  for (const AttentionShortShape& tile : {AttentionShortShape{},
                                          {.groups = 2, .stages = 2, .slots = 2, .blocks = 1},
                                          {.polynomial = 2, .held = true},
                                          {.held = true, .ahead = false}})
    check({tile}, {.batch = 1, .heads = 2, .kv_heads = 2, .queries = 257, .keys = 257, .depth = 64}, true);
}

// Blocks that walk over heads, in parts.
TEST(AttentionShort, Walks) {
  for (bool ahead : {false, true})
    for (int groups : {1, 2, 3})
      for (int parts : {1, 2, 3})
        check({.tile = {64, 64, groups, 128, groups, 2, 1, 2, false, ahead},
               .type = DType::BF16,
               .multiprocessors = 1,
               .parts = parts},
              {.batch = 2, .heads = 3, .kv_heads = 1, .queries = 150, .keys = 100, .depth = 40}, true);
}

TEST(AttentionShort, Masks) {
  check({{.keys = 160}}, {.queries = 140, .keys = 140, .depth = 64, .causal = 1});
  check({{.groups = 2, .stages = 2, .slots = 2, .blocks = 1}}, {.queries = 100, .keys = 270, .depth = 64, .causal = 1});
  check({{.keys = 224}}, {.queries = 300, .keys = 200, .depth = 64});
}

}  // namespace
}  // namespace tenon::cuda::test
