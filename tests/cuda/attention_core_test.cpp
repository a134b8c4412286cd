// attention_mma on the emulator beside sums in double: every kind of head, tails of queries and keys, causal masks,
// grouped queries, heads that lie in strides, NaNs.
#include <gmock/gmock.h>

#include "core_harness.h"
#include "nvrtc_environment.h"
#include "tenon/backend/cuda/attention_launch.h"
#include "tenon/backend/cuda/driver/cubin.h"

namespace tenon::cuda::test {
namespace {

constexpr int kAdaShared = 101376, kHopperShared = 232448;

struct Params {
  device::AttentionSizes sizes;
  const void *q, *k, *v;
  float* y;
  int tokens_first;  ///< q, k and v lie as [batch, token, head, depth], else [batch, head, token, depth]
};

struct Variant {
  AttentionTileShape tile;
  DType type = DType::BF16;
  int run = 8;  ///< of the epilogue
};

// An operand that stops the kernel where it is asked for what there is not.
std::string head_operand(const std::string& name, const std::string& pointer, const std::string& heads,
                         const std::string& tokens) {
  return "struct " + name +
         " {\n  using T = Element;\n  static constexpr int kRun = 8;\n  struct Row { const T* at; int depth; };\n"
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

std::string text_of(const Variant& v) {
  return "#include \"tenon/device/attention_mma.h\"\nusing namespace tenon::device;\nusing Element = " +
         element_name(v.type) +
         ";\nstruct Params { AttentionSizes sizes; const Element *q, *k, *v; float* y; int tokens_first; };\n" +
         head_operand("Q", "q", "heads", "queries") + head_operand("K", "k", "kv_heads", "keys") +
         head_operand("V", "v", "kv_heads", "keys") + epilogue(1, v.run, "p.sizes.depth") +
         "using Tile = " + v.tile.type() +
         ";\nstatic_assert(Tile::kSharedBytes == " + std::to_string(v.tile.shared_bytes()) +
         ");\nKERNEL(Tile::kThreads, 1, Params, p) { attention_mma<Tile, Q, K, V, Epilogue>(p); }\n";
}

struct Problem {
  device::AttentionSizes s;
  std::shared_ptr<void> q, k, v;
  int tokens_first = 0;

  int64_t rows() const { return static_cast<int64_t>(s.batch) * s.heads * s.queries; }
};

// The kernel's results without what the epilogue adds. Run twice, the threads once in the opposite order: the same to
// the bit.
std::vector<float> run(const Variant& v, const Problem& x) {
  constexpr int kBehind = 64;  // floats behind the result, which must stay as they are
  const size_t floats = static_cast<size_t>(x.rows() * x.s.depth) + kBehind;
  std::vector<float> out[2];
  for (int backwards = 0; backwards < 2; ++backwards) {
    Emulator device(EmulatorOptions{.backwards = backwards == 1});
    const auto y = poisoned(device, static_cast<int64_t>(floats) * 4);
    const Params params{x.s, x.q.get(), x.k.get(), x.v.get(), static_cast<float*>(y.get()), x.tokens_first};
    device.load({"attention", text_of(v)})
        ->launch(attention_launch(v.tile, x.s).shape, std::as_bytes(std::span(&params, 1)));
    out[backwards].resize(floats);
    device.copy_out(out[backwards].data(), y.get(), static_cast<int64_t>(floats) * 4);
  }
  EXPECT_EQ(std::memcmp(out[0].data(), out[1].data(), floats * 4), 0);
  EXPECT_TRUE(std::all_of(out[0].end() - kBehind, out[0].end(), [](float f) { return std::isnan(f); }));
  out[0].resize(floats - kBehind);
  const int64_t depth = x.s.depth;
  for (int64_t i = 0; i < x.rows() * depth; ++i)
    out[0][static_cast<size_t>(i)] -= static_cast<float>(i / depth) + 0.5f * static_cast<float>(i % depth);
  return out[0];
}

// Row `token` of a head.
const float* row_of(const RandomTensor& x, const Problem& p, int batch, int heads, int head, int tokens, int token) {
  static_cast<void>(batch);
  const int64_t row = p.tokens_first ? (static_cast<int64_t>(batch) * tokens + token) * heads + head
                                     : (static_cast<int64_t>(batch) * heads + head) * tokens + token;
  return x.values.data() + row * p.s.depth;
}

struct Expected {
  double value, square, spread;  ///< sum of w v, of (w v)^2, of v^2 / (total / largest weight)^2
};

// One row of the result.
std::vector<Expected> expected_row(const RandomTensor& q, const RandomTensor& k, const RandomTensor& v,
                                   const Problem& x, int batch, int head, int query) {
  const device::AttentionSizes& s = x.s;
  const int kv = head / (s.heads / s.kv_heads), seen = s.causal ? query + 1 + s.keys - s.queries : s.keys;
  const float* mine = row_of(q, x, batch, s.heads, head, s.queries, query);
  std::vector<double> weights(static_cast<size_t>(seen));
  double top = -INFINITY, total = 0;
  for (int j = 0; j < seen; ++j) {
    const float* key = row_of(k, x, batch, s.kv_heads, kv, s.keys, j);
    double score = 0;
    for (int d = 0; d < s.depth; ++d) score += static_cast<double>(mine[d]) * key[d];
    weights[static_cast<size_t>(j)] = score * s.scale;
    top = std::max(top, score * s.scale);
  }
  for (double& w : weights) total += w = std::exp(w - top);
  std::vector<Expected> out(static_cast<size_t>(s.depth), Expected{});
  for (int j = 0; j < seen; ++j) {
    const float* value = row_of(v, x, batch, s.kv_heads, kv, s.keys, j);
    for (int d = 0; d < s.depth; ++d) {
      const double one = weights[static_cast<size_t>(j)] / total * value[d];
      Expected& e = out[static_cast<size_t>(d)];
      e.value += one, e.square += one * one, e.spread += value[d] * value[d] / total / total;
    }
  }
  return out;
}

void check(const Variant& v, device::AttentionSizes s, bool tokens_first = false) {
  SCOPED_TRACE(v.tile.type() + " " + std::to_string(s.batch) + "x" + std::to_string(s.heads) + "/" +
               std::to_string(s.kv_heads) + " " + std::to_string(s.queries) + " x " + std::to_string(s.keys) + " x " +
               std::to_string(s.depth) + (s.causal ? " causal" : ""));
  if (s.scale == 1) s.scale = 1.3f / std::sqrt(static_cast<float>(s.depth));
  Emulator memory;
  const int64_t kv = static_cast<int64_t>(s.batch) * s.kv_heads * s.keys * s.depth;
  const RandomTensor q(memory, v.type, static_cast<int64_t>(s.batch) * s.heads * s.queries * s.depth, 1),
      k(memory, v.type, kv, 2), w(memory, v.type, kv, 3);
  const Problem x{s, q.memory, k.memory, w.memory, tokens_first};
  const int64_t conflicts = Emulator::statistics().bank_conflicts;
  const std::vector<float> y = run(v, x);
  EXPECT_EQ(Emulator::statistics().bank_conflicts, conflicts);
  // Each weight is rounded once: independent errors of up to half a unit, and in f16 of half the smallest number.
  const double unit = v.type == DType::BF16 ? 0x1p-9 : 0x1p-11, least = v.type == DType::BF16 ? 0 : 0x1p-25;
  int wrong = 0;
  for (int64_t row = 0; row < x.rows(); ++row) {
    const int64_t head = row / s.queries;
    const auto want = expected_row(q, k, w, x, static_cast<int>(head / s.heads), static_cast<int>(head % s.heads),
                                   static_cast<int>(row % s.queries));
    for (int d = 0; d < s.depth && wrong < 5; ++d) {
      const Expected& e = want[static_cast<size_t>(d)];
      const double got = y[static_cast<size_t>(row * s.depth + d)], added = static_cast<double>(row) + 0.5 * d;
      const double tolerance =
          6 * (unit * std::sqrt(e.square) + least * std::sqrt(e.spread)) + 0x1p-22 * (added + 8 * std::sqrt(s.depth));
      if (!(std::abs(got - e.value) <= tolerance)) {
        ADD_FAILURE() << "at " << row << ", " << d << ": got " << got << ", want " << e.value << " within "
                      << tolerance;
        ++wrong;
      }
    }
  }
}

Variant picked(int depth, DType type = DType::BF16) { return {pick_attention_tile(depth, kAdaShared), type}; }

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

// The tile's depth is an upper bound; the columns beyond are zeros or no one's.
TEST(AttentionCore, ShallowerHeadsThanTheTile) {
  for (int depth : {8, 40}) check(picked(64, DType::F16), {.queries = 30, .keys = 70, .depth = depth});
  check(picked(160), {.queries = 20, .keys = 70, .depth = 136});
  Variant narrow = picked(80);
  narrow.tile.value_columns = 24, narrow.run = 4;  // three blocks a tile of queries, and one column of the last
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

// One NaN in q, k or v, under a causal mask.
TEST(AttentionCore, NansReachThoseWhoSeeThem) {
  const device::AttentionSizes s{.queries = 150, .keys = 210, .depth = 40, .scale = 0.2f, .causal = 1};
  constexpr int kQuery = 131, kKey = 133, kColumn = 17;
  for (int where = 0; where < 3; ++where) {
    SCOPED_TRACE(where);
    Emulator memory;
    const RandomTensor q(memory, DType::BF16, 150 * 40, 1), k(memory, DType::BF16, 210 * 40, 2),
        v(memory, DType::BF16, 210 * 40, 3);
    const void* at[] = {q.memory.get(), k.memory.get(), v.memory.get()};
    store_element(DType::BF16, const_cast<void*>(at[where]), (where == 0 ? kQuery : kKey) * 40 + kColumn, NAN);
    const std::vector<float> y = run(picked(40), {s, q.memory, k.memory, v.memory});
    for (int i = 0; i < 150; ++i)
      for (int d = 0; d < 40; ++d) {
        const bool sees = where == 0 ? i == kQuery : i + 60 >= kKey;
        // Of v an unseen value counts 0 times: a NaN for all queries of a tile that looks at it.
        if (where == 2 && !sees && d == kColumn) continue;
        const bool reached = sees && (where < 2 || d == kColumn);
        EXPECT_EQ(std::isnan(y[static_cast<size_t>(i * 40 + d)]), reached) << i << ", " << d;
      }
  }
}

// A whole tile of keys of score -inf is as if it were not there, to the bit.
TEST(AttentionCore, KeysThatWeighNothing) {
  const device::AttentionSizes s{.queries = 20, .keys = 100, .depth = 40, .scale = 0.2f};
  Emulator memory;
  const RandomTensor q(memory, DType::BF16, 20 * 40, 1), k(memory, DType::BF16, 100 * 40, 2),
      v(memory, DType::BF16, 100 * 40, 3);
  const AttentionTileShape tile = pick_attention_tile(40, kAdaShared);
  for (int j = 0; j < tile.keys; ++j) store_element(DType::BF16, k.memory.get(), j * 40, -INFINITY);
  for (int i = 0; i < 20; ++i) store_element(DType::BF16, q.memory.get(), i * 40, 1.0);
  Problem rest{s, q.memory, k.memory, v.memory};
  rest.s.keys -= tile.keys;
  for (auto* x : {&rest.k, &rest.v}) *x = {*x, static_cast<char*>(x->get()) + tile.keys * 40 * 2};
  EXPECT_EQ(run({tile}, {s, q.memory, k.memory, v.memory}), run({tile}, rest));
}

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

// The tiles that come closest to the limit of registers.
TEST(AttentionCore, MachineCode) {
  SKIP_WITHOUT_NVRTC();
  for (const auto& [arch, shared] : {std::pair{"sm_89", kAdaShared}, {"sm_90a", kHopperShared}})
    for (int depth : {80, 160}) {
      const AttentionTileShape tile = pick_attention_tile(depth, shared);
      const KernelBinary code = find_nvrtc().nvrtc->compile({"attention", text_of({tile})}, arch);
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
