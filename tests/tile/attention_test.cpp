// attention against fp64: tails, head widths, causal, grouped heads, sources, every instruction set, one and two
// threads.
#include "tenon/backend/cpu/tile/attention.h"

#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>

#include "tests/support/sanitized.h"
#include "tests/tile/support.h"

namespace tenon::cpu::test {
namespace {

struct Problem {
  AttentionShape s;
  std::vector<float> q, k, v;    // [batch, rows, heads, d]
  std::vector<double> expected;  // [batch, sq, heads, d]
  double score_size;             // how far rounding of scores may change the weights, relative to operands below 1

  explicit Problem(const AttentionShape& shape, float spread = 1) : s(shape), score_size(1 + spread * spread / 100) {
    q = random_bf16_values(s.batch * s.sq * s.heads * s.d, 1, spread);
    k = random_bf16_values(s.batch * s.sk * s.kv_heads * s.d, 2, spread);
    v = random_bf16_values(s.batch * s.sk * s.kv_heads * s.d, 3);
    expected.resize(q.size());
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.heads; ++h)
        for (int64_t i = 0; i < s.sq; ++i) row(b, h, i);
  }

  void row(int64_t b, int64_t h, int64_t i) {
    const int64_t kv = h / (s.heads / s.kv_heads), visible = s.causal ? std::min(s.sk, i + s.sk - s.sq + 1) : s.sk;
    double* out = expected.data() + ((b * s.sq + i) * s.heads + h) * s.d;
    std::fill_n(out, s.d, visible > 0 ? 0.0 : std::numeric_limits<double>::quiet_NaN());
    if (visible <= 0) return;
    std::vector<double> weights(static_cast<size_t>(visible));
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = 0; j < visible; ++j) {
      double dot = 0;
      for (int64_t c = 0; c < s.d; ++c) dot += static_cast<double>(q_at(b, h, i)[c]) * k_at(b, kv, j)[c];
      weights[static_cast<size_t>(j)] = dot * s.scale;
      largest = std::max(largest, dot * s.scale);
    }
    for (double& w : weights) sum += w = std::exp(w - largest);
    for (int64_t j = 0; j < visible; ++j)
      for (int64_t c = 0; c < s.d; ++c) out[c] += weights[static_cast<size_t>(j)] / sum * v_at(b, kv, j)[c];
  }
  const float* q_at(int64_t b, int64_t h, int64_t i) const { return q.data() + ((b * s.sq + i) * s.heads + h) * s.d; }
  const float* k_at(int64_t b, int64_t h, int64_t i) const {
    return k.data() + ((b * s.sk + i) * s.kv_heads + h) * s.d;
  }
  const float* v_at(int64_t b, int64_t h, int64_t i) const {
    return v.data() + ((b * s.sk + i) * s.kv_heads + h) * s.d;
  }
};

std::vector<float> run(const Problem& p, const TileOps& ops, DType type, int threads, DType source, int64_t keys = -1) {
  AttentionShape s = p.s;
  s.type = type;
  ThreadPool pool(threads);
  const bool hooks = source == DType::F64;
  const auto q = hooks ? std::vector<std::byte>{} : stored_as(source, p.q);
  const auto k = hooks ? std::vector<std::byte>{} : stored_as(source, p.k);
  const auto v = hooks ? std::vector<std::byte>{} : stored_as(source, p.v);
  const auto copy = [&](const float* from, int64_t stride, int64_t rows, float* dst, int64_t ld) {
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(dst + r * ld, from + r * stride, static_cast<size_t>(s.d) * sizeof(float));
  };
  const auto q_rows = [&](int64_t b, int64_t h, int64_t row0, int64_t rows, float* dst, int64_t ld, int) {
    copy(p.q_at(b, h, row0), s.sq == 1 ? s.d : s.heads * s.d, rows, dst, ld);
  };
  const auto k_rows = [&](int64_t b, int64_t h, int64_t row0, int64_t rows, float* dst, int64_t ld, int) {
    copy(p.k_at(b, h, row0), s.kv_heads * s.d, rows, dst, ld);
  };
  const auto v_rows = [&](int64_t b, int64_t h, int64_t row0, int64_t rows, float* dst, int64_t ld, int) {
    copy(p.v_at(b, h, row0), s.kv_heads * s.d, rows, dst, ld);
  };
  std::vector<float> out(p.expected.size(), -777.0f);
  const auto store = [&](int64_t b, int64_t h, int64_t row0, int64_t rows, float* o, int64_t ld, int) {
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(out.data() + ((b * s.sq + row0) * s.heads + h + (s.sq == 1 ? r : r * s.heads)) * s.d, o + r * ld,
                  static_cast<size_t>(s.d) * sizeof(float));
  };
  const int64_t q_ld = s.heads * s.d, kv_ld = s.kv_heads * s.d;
  AttentionArgs args;
  args.shape = s;
  args.q = {hooks ? nullptr : q.data(), source, s.sq * q_ld, s.d, q_ld, q_rows};
  args.k = {hooks ? nullptr : k.data(), source, s.sk * kv_ld, s.d, kv_ld, k_rows};
  args.v = {hooks ? nullptr : v.data(), source, s.sk * kv_ld, s.d, kv_ld, v_rows};
  args.out = store;
  if (keys >= 0) args.keys = std::span(&keys, 1);
  const Poisoned scratch(attention_scratch_bytes(s, threads));
  attention(pool, ops, args, scratch.get());
  EXPECT_TRUE(scratch.intact());
  return out;
}

// Weights sum to 1 and |v| <= 1: f32 leaves about 1e-6 of scores of size ~d; bf16 also rounds each weight by 2^-9.
void check(const Problem& p, const std::vector<float>& out, DType type, const std::string& what) {
  const double tolerance =
      type == DType::BF16 ? 0.003 : 2e-6 * (1 + std::sqrt(static_cast<double>(p.s.d))) * p.score_size;
  EXPECT_TRUE(close(out, p.expected, Tolerance{tolerance}, NaN::MayBeExpected))  // rows that see no key
      << what << " sq " << p.s.sq << " sk " << p.s.sk << " d " << p.s.d;
}

void check_everywhere(const AttentionShape& s, std::initializer_list<DType> sources, float spread = 1) {
  const Problem p(s, spread);
  for (const TileOps* ops : all_ops())
    for (DType type : kPackedTypes)
      for (DType source : sources) {
        const auto one = run(p, *ops, type, 1, source), two = run(p, *ops, type, 2, source);
        check(p, one, type,
              std::string(ops->name) + " " + std::string(name_of(type)) + " from " + std::string(name_of(source)));
        EXPECT_EQ(0, std::memcmp(one.data(), two.data(), one.size() * sizeof(float))) << "threads change the result";
      }
}

AttentionShape shape(int64_t batch, int64_t heads, int64_t sq, int64_t sk, int64_t d) {
  AttentionShape s;
  s.batch = batch;
  s.heads = s.kv_heads = heads;
  s.sq = sq;
  s.sk = sk;
  s.d = d;
  s.scale = 1 / std::sqrt(static_cast<float>(d));
  return s;
}

TEST(Attention, Tails) {
  for (int64_t sq : {1, 7, 16, 65})
    for (int64_t sk : {1, 15, 16, 17, 77, 130})
      for (int64_t d : {1, 16, 40, 64, 80}) check_everywhere(shape(1, 2, sq, sk, d), {DType::F64});
}

TEST(Attention, WideHeads) {
  check_everywhere(shape(1, 1, 70, 140, 160), {DType::F64});
  check_everywhere(shape(1, 1, 140, 300, 512), {DType::F64});
}

// A row of causal attention over the first keys of a cache is bit-identical to the same row among all rows of a text,
// whatever other rows share its keys and values and however many threads share the work.
TEST(Attention, RowsOfACacheAreThoseOfATextBitForBit) {
  for (const int64_t kv_heads : {4, 2, 1}) {
    if (sanitized() && kv_heads == 4) continue;  // heads that share no keys: as in other tests
    AttentionShape s = shape(1, 4, 600, 600, 40);
    s.kv_heads = kv_heads;
    s.causal = true;
    const Problem p(s);
    for (const TileOps* ops : all_ops())
      for (DType type : kPackedTypes) {
        const auto whole = run(p, *ops, type, 2, DType::F32);
        for (const int64_t at : {0, 31, 63, 255, 256, 257, 320, 511, 599}) {
          Problem one = p;  // query `at` alone, over a cache with room for more keys
          one.s.sq = 1;
          one.q.assign(p.q_at(0, 0, at), p.q_at(0, 0, at) + s.heads * s.d);
          one.expected.resize(one.q.size());
          for (const int threads : {1, 2, 3})
            for (const DType source : {DType::F32, DType::BF16, DType::F64}) {  // operands are exact in bf16
              const auto row = run(one, *ops, type, threads, source, at + 1);
              EXPECT_EQ(0, std::memcmp(row.data(), whole.data() + at * s.heads * s.d, row.size() * sizeof(float)))
                  << ops->name << " " << name_of(type) << " row " << at << ", " << kv_heads << " kv heads";
            }
        }
      }
  }
}

// Queries of several texts, each with its own keys; a text without keys gives NaN.
TEST(Attention, OneQueryATextWithGroupedHeads) {
  AttentionShape s = shape(3, 6, 1, 300, 64);
  s.kv_heads = 2;
  check_everywhere(s, {DType::F64, DType::F32, DType::BF16});
  const Problem p(shape(1, 6, 1, 300, 64));
  for (const TileOps* ops : all_ops())
    for (int threads : {1, 2})
      for (float x : run(p, *ops, DType::BF16, threads, DType::BF16, 0)) EXPECT_TRUE(std::isnan(x)) << ops->name;
}

// One block of keys slightly longer than usual, and blocks of equal size.
TEST(Attention, BlocksOfKeys) {
  for (int64_t sk : {257, 320, 321, 577}) check_everywhere(shape(1, 2, 20, sk, 40), {DType::BF16});
  AttentionShape s = shape(1, 2, 577, 577, 40);
  s.causal = true;
  check_everywhere(s, {DType::F64});
}

TEST(Attention, Sources) { check_everywhere(shape(2, 3, 50, 90, 40), {DType::F32, DType::BF16, DType::F16}); }

TEST(Attention, Causal) {
  for (auto [sq, sk] : {std::array<int64_t, 2>{77, 77}, {5, 300}, {200, 200}, {300, 140}, {1, 1}}) {
    AttentionShape s = shape(1, 2, sq, sk, 40);
    s.causal = true;
    check_everywhere(s, {DType::F64});
  }
}

TEST(Attention, GroupedHeads) {
  AttentionShape s = shape(2, 6, 33, 50, 64);
  s.kv_heads = 2;
  check_everywhere(s, {DType::F64, DType::BF16});
}

TEST(Attention, LargeScores) { check_everywhere(shape(1, 1, 64, 400, 64), {DType::F64}, 40.0f); }

TEST(Attention, HugeScores) {
  // Scores of up to 1e12 are far apart, so that every row is the value of its largest, in any block of keys.
  for (const int64_t sk : {5, 300, 700})
    for (const int64_t sq : {1, 20}) {
      const Problem p(shape(1, 2, sq, sk, 24), 0x1p20f);
      for (const TileOps* ops : all_ops())
        for (DType type : kPackedTypes) {
          const auto out = run(p, *ops, type, 1, DType::F64);
          EXPECT_TRUE(close(out, p.expected, Tolerance{0.01})) << ops->name << " " << name_of(type) << " of " << sk;
        }
    }
}

TEST(Attention, ARowOfInfinitelySmallScoresIsNan) {
  for (const int64_t d : {8, 13, 40})
    for (const int64_t sk : {2, 32, 300}) {
      Problem p(shape(1, 1, 3, sk, d));
      std::ranges::fill(p.k, 1.0f);
      p.q[static_cast<size_t>(d)] = -std::numeric_limits<float>::infinity();
      for (const TileOps* ops : all_ops())
        for (DType type : kPackedTypes) {
          const auto out = run(p, *ops, type, 1, DType::F64);
          for (size_t r = 0; r < 3; ++r)
            EXPECT_EQ(std::isnan(out[r * static_cast<size_t>(d)]), r == 1) << ops->name << " " << d << " " << sk;
        }
    }
}

// In a mask's block, too.
TEST(Attention, NoScoreIsTooSmall) {
  for (const bool causal : {false, true})
    for (const int64_t sk : {5, 300}) {
      AttentionShape s = shape(1, 1, 3, sk, 16);
      s.causal = causal;
      Problem p(s);
      std::ranges::fill(p.q, 0x1p50f);
      std::ranges::fill(p.k, -0x1p50f);
      for (int64_t i = 0; i < 3; ++i) p.row(0, 0, i);
      for (const TileOps* ops : all_ops())
        for (DType type : kPackedTypes)
          EXPECT_TRUE(close(run(p, *ops, type, 1, DType::F64), p.expected, Tolerance{0.02})) << ops->name << " " << sk;
    }
}

// Fewer keys than a block, and more.
TEST(Attention, AScoreOfMinusInfinityHasNoWeight) {
  for (const int64_t sq : {1, 3})
    for (const int64_t hidden : {1, 290}) {
      Problem p(shape(1, 1, sq, 300, 40));
      for (int64_t i = 0; i < sq; ++i) p.q[static_cast<size_t>(i * 40)] = 1;
      for (int64_t j = 0; j < hidden; ++j) p.k[static_cast<size_t>(j * 40)] = -std::numeric_limits<float>::infinity();
      for (int64_t i = 0; i < sq; ++i) p.row(0, 0, i);
      for (const TileOps* ops : all_ops())
        for (DType type : kPackedTypes)
          EXPECT_TRUE(close(run(p, *ops, type, 1, DType::F64), p.expected, Tolerance{0.02})) << ops->name << hidden;
    }
}

// Numbers below 2^-126 take some processors 150 cycles each, and causal attention has many hidden scores. Here each of
// them ends the process. (AVX-512's instruction for powers of two meets some too, but takes no longer.)
TEST(Attention, HiddenScoresMakeNoSubnormalsInAvx2) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr int kCols = 64;
  const Poisoned weights(4 * kLine);
  for (DType type : {DType::F32, DType::BF16}) {
    alignas(64) float scores[kCols] = {}, o[16] = {}, row_max, row_sum;
    std::fill(scores + kCols / 2, scores + kCols, kHiddenScore);
    const auto weigh = [&] {
      _mm_setcsr(_mm_getcsr() & ~static_cast<unsigned>(_MM_MASK_UNDERFLOW));
      tile_ops(Isa::Avx2)->softmax(
          {scores, kCols, 1, kCols, 1.0f, &row_max, &row_sum, weights.get(), type, kLine, o, 16, 16, true});
      std::_Exit(std::abs(row_sum - kCols / 2) < 1e-4f ? 0 : 1);
    };
    EXPECT_EXIT(weigh(), testing::ExitedWithCode(0), "") << name_of(type);
  }
}

TEST(Attention, FaultsFail) {
  const Problem p(shape(1, 2, 20, 30, 16));
  expect_faults_fail(run(p, tile_ops(), DType::F32, 1, DType::F64),
                     [&](const std::vector<float>& out) { check(p, out, DType::F32, "planted"); });
}

TEST(Attention, NanAndInfinityComeOutAsNan) {
  Problem p(shape(1, 1, 20, 300, 40));
  p.q[3 * 40 + 1] = std::numeric_limits<float>::quiet_NaN();
  p.q[5 * 40 + 2] = std::numeric_limits<float>::infinity();
  for (const TileOps* ops : all_ops())
    for (DType type : kPackedTypes) {
      const auto out = run(p, *ops, type, 1, DType::F64);
      for (int r = 0; r < 20; ++r)
        EXPECT_EQ(std::isnan(out[static_cast<size_t>(r * 40)]), r == 3 || r == 5) << ops->name;
    }
  p.q[3 * 40 + 1] = p.q[5 * 40 + 2] = 0;
  p.k[200 * 40] = std::numeric_limits<float>::quiet_NaN();
  for (const TileOps* ops : all_ops())
    for (DType type : kPackedTypes)
      for (float x : run(p, *ops, type, 1, DType::F64)) EXPECT_TRUE(std::isnan(x)) << ops->name;
}

TEST(Attention, ProductionSizes) {
  for (const AttentionShape& s :
       {shape(1, 2, 1024, 1024, 80), shape(1, 1, 2048, 4096, 40), shape(2, 8, 256, 77, 160)}) {
    const Problem p(s);
    for (int i = 0; i < kIsaCount; ++i)
      if (const TileOps* ops = tile_ops(static_cast<Isa>(i)))
        for (DType type : kPackedTypes) check(p, run(p, *ops, type, 2, DType::BF16), type, ops->name);
  }
}

}  // namespace
}  // namespace tenon::cpu::test
