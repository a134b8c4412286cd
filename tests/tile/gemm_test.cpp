// gemm against fp64: tails in every dimension, sources, lanes, batches, schedules, every instruction set.
#include "tenon/backend/cpu/tile/gemm.h"

#include <atomic>

#include "tenon/backend/cpu/tile/gemm_schedule.h"
#include "tenon/core/i8_blocks.h"
#include "tests/tile/support.h"

namespace tenon::cpu::test {
namespace {

struct Case {
  int64_t m, n, k;
  int lanes = 1;
  int64_t batch = 1;
  bool shared_b = true;
};

struct Problem {
  Case c;
  std::vector<float> a, w;              // [batch * m, k], [entries, lanes * n, k]
  std::vector<double> expected, bound;  // [batch * m, lanes, n]
  int64_t entries;

  explicit Problem(const Case& shape, std::optional<DType> bytes = {})
      : c(shape), entries(shape.shared_b ? 1 : shape.batch) {
    a = random_bf16_values(c.batch * c.m * c.k, 1);
    w = random_bf16_values(entries * c.lanes * c.n * c.k, 2);
    for (std::vector<float>* x : {&a, &w})
      for (size_t i = 0; bytes == DType::E4M3 && i < x->size(); ++i) (*x)[i] = e4m3_value(e4m3_bits(400 * (*x)[i]));
    for (size_t i = 0; bytes == DType::I8 && i < w.size(); ++i) w[i] = std::round(127 * w[i]);
    multiply({a.begin(), a.end()}, {w.begin(), w.end()});
  }

  // Multiplies rows x with columns y.
  void multiply(const std::vector<double>& xs, const std::vector<double>& ys) {
    const int64_t cols = c.lanes * c.n;
    expected.resize(static_cast<size_t>(c.batch * c.m * cols));
    bound = expected;
    for (int64_t row = 0; row < c.batch * c.m; ++row)
      for (int64_t j = 0; j < cols; ++j) {
        const double* x = xs.data() + row * c.k;
        const double* y = ys.data() + ((c.shared_b ? 0 : row / c.m) * cols + j) * c.k;
        double sum = 0, size = 0;
        for (int64_t i = 0; i < c.k; ++i) {
          const double p = x[i] * y[i];
          sum += p;
          size += std::abs(p);
        }
        expected[static_cast<size_t>(row * cols + j)] = sum;
        bound[static_cast<size_t>(row * cols + j)] = sum_tolerance(c.k, size);
      }
  }
};

// Runs the product; `source` F64 means the hook. `on_the_fly`: B is packed when it is multiplied.
std::vector<float> run(const Problem& p, const TileOps& ops, DType type, int threads, DType source,
                       std::optional<DType> bytes = {}, bool on_the_fly = false) {
  const Case& c = p.c;
  ThreadPool pool(threads);
  PackedShape shape = linear_shape(type, c.n, c.k, c.lanes);
  shape.bytes_of = bytes;
  shape.on_the_fly = on_the_fly;
  const Poisoned packed(on_the_fly ? 0 : shape.bytes() * p.entries);
  const auto panels = [&](const PanelRange& range, std::byte* dst) {
    const int64_t k0 = range.term * 32, end = std::min(c.k, range.term_end * 32);
    for (int64_t i = 0; i < range.panels; ++i, dst += (range.term_end - range.term) * kBlock) {
      const int64_t column = (range.panel0 + i) * kPanel, row = range.lane * c.n + column;
      const auto cols = static_cast<int>(std::min<int64_t>(kPanel, c.n - column));
      ops.pack_panel({p.w.data() + row * c.k + k0, DType::F32, c.k, end - k0, cols, dst, DType::BF16});
    }
  };
  for (int64_t e = 0; e < p.entries && !on_the_fly; ++e)
    pack_linear(pool, ops, p.w.data() + e * c.lanes * c.n * c.k, DType::F32, c.k, shape,
                static_cast<std::byte*>(packed.get()) + e * shape.bytes());
  const BeforeTheEnd stored(source == DType::F64 ? std::vector<std::byte>{} : stored_as(source, p.a));
  std::vector<std::atomic<int>> asked(static_cast<size_t>(c.batch * c.m));
  const auto rows = [&](int64_t row0, int64_t count, float* dst, int64_t ld, int) {
    for (int64_t r = 0; r < count; ++r) {
      ++asked[static_cast<size_t>(row0 + r)];
      std::memcpy(dst + r * ld, p.a.data() + (row0 + r) * c.k, static_cast<size_t>(c.k) * sizeof(float));
    }
  };
  std::vector<float> out(p.expected.size(), std::numeric_limits<float>::quiet_NaN());
  const auto tile = [&](const OutTile& t) {
    ASSERT_LE(t.rows, kMaxTileRows);
    ASSERT_LE(t.cols, kMaxTileCols);
    for (int lane = 0; lane < c.lanes; ++lane)
      for (int r = 0; r < t.rows; ++r)
        for (int j = 0; j < t.cols; ++j) {
          float& to = out[static_cast<size_t>(((t.row0 + r) * c.lanes + lane) * c.n + t.col0 + j)];
          EXPECT_TRUE(std::isnan(to)) << "an element came twice";
          to = t.acc[lane][r * t.ld + j];
        }
  };
  GemmArgs args;
  args.m = c.m;
  args.a = {source == DType::F64 ? nullptr : stored.data(), source, c.k, rows};
  args.b = {shape, on_the_fly ? nullptr : packed.get()};
  args.panels = panels;
  args.batch = c.batch;
  args.b_batch_stride = c.shared_b ? 0 : shape.bytes();
  args.out = tile;
  const Poisoned scratch(gemm_scratch_bytes(ops, shape, c.m, c.batch, threads));
  gemm(pool, ops, args, scratch.get());
  EXPECT_TRUE(scratch.intact());
  const int most = c.m == 1 ? threads : 1;  // a single row is packed by each thread
  for (const auto& n : asked) {
    EXPECT_GE(n.load(), source == DType::F64 ? 1 : 0);
    EXPECT_LE(n.load(), source == DType::F64 ? most : 0);
  }
  return out;
}

void check(const Problem& p, const std::vector<float>& out, const std::string& what) {
  EXPECT_TRUE(within(out, p.expected, p.bound))
      << what << " m " << p.c.m << " n " << p.c.n << " k " << p.c.k << " lanes " << p.c.lanes;
}

void check_everywhere(const Case& c, std::initializer_list<DType> sources) {
  const Problem p(c);
  for (const TileOps* ops : all_ops())
    for (DType type : kPackedTypes)
      for (DType source : sources) {
        const auto one = run(p, *ops, type, 1, source);
        check(p, one,
              std::string(ops->name) + " " + std::string(name_of(type)) + " from " + std::string(name_of(source)));
        for (int threads : {2, 3}) {
          const auto other = run(p, *ops, type, threads, source);
          EXPECT_EQ(0, std::memcmp(one.data(), other.data(), one.size() * sizeof(float)))
              << threads << " threads change the result";
        }
      }
}

TEST(Gemm, Tails) {
  for (int64_t m : {1, 7, 16, 17, 33, 65})
    for (int64_t n : {1, 7, 16, 17, 31, 48, 80, 130})
      for (int64_t k : {1, 7, 16, 31, 33, 64}) check_everywhere({m, n, k}, {DType::F64});
}

TEST(Gemm, Sources) { check_everywhere({77, 50, 83}, {DType::F64, DType::F32, DType::BF16, DType::F16}); }

// Rows read in place: bit-identical to packed ones.
TEST(Gemm, RowsInPlace) {
  for (int64_t m = 1; m <= 100; ++m) {
    const Problem p({m, 50, 64});
    for (const TileOps* ops : all_ops()) {
      const auto in_place = run(p, *ops, DType::BF16, 1, DType::BF16);
      check(p, in_place, ops->name);
      EXPECT_EQ(in_place, run(p, *ops, DType::BF16, 1, DType::F64)) << ops->name << " " << m;
    }
  }
  check_everywhere({35, 33, 96, 1, 3, true}, {DType::BF16});
  check_everywhere({451, 33, 3328}, {DType::BF16});             // in bands, of which the last ends within a tile
  check_everywhere({37, 18, 64, 1, 13, false}, {DType::BF16});  // each entry by one thread
}

TEST(Gemm, Lanes) {
  check_everywhere({40, 23, 40, 2}, {DType::F64});
  check_everywhere({70, 100, 96, 3}, {DType::F64});
  check_everywhere({5, 16, 2500, 4}, {DType::F64});
}

TEST(Gemm, Batches) {
  check_everywhere({20, 33, 24, 1, 3, false}, {DType::F64});
  check_everywhere({20, 33, 24, 1, 3, true}, {DType::BF16});
  check_everywhere({600, 16, 700, 1, 2, false}, {DType::F64});
  check_everywhere({37, 18, 40, 1, 13, false}, {DType::F64, DType::F32});  // each entry by one thread
}

// Weights that are e4m3 or i8 numbers, one byte each (with rows of e4m3 too): bit-identical to the same numbers in
// bf16.
void check_bytes(DType t, const Case& c) {
  const Problem p(c, t);
  const DType rows = t == DType::E4M3 ? t : DType::BF16;
  for (const TileOps* ops : all_ops()) {
    const auto wide = run(p, *ops, DType::BF16, 1, rows);
    check(p, wide, ops->name);
    for (int threads : {1, 2}) {
      const auto kept = run(p, *ops, DType::BF16, threads, rows, t);
      EXPECT_EQ(0, std::memcmp(wide.data(), kept.data(), wide.size() * sizeof(float))) << ops->name << name_of(t);
    }
  }
}

TEST(Gemm, Bytes) {
  for (const DType t : {DType::E4M3, DType::I8}) {
    for (int64_t m : {1, 17, 65})
      for (int64_t n : {1, 17, 80, 130})
        for (int64_t k : {1, 31, 33, 64, 150}) check_bytes(t, {m, n, k});
    check_bytes(t, {16, 48, 576});
    check_bytes(t, {70, 100, 96, 3});
    check_bytes(t, {5, 16, 2500, 4});
    check_bytes(t, {20, 33, 24, 1, 3, false});
    check_bytes(t, {600, 80, 3000});
    PackedShape kept = linear_shape(DType::BF16, 100, 96, 3);
    kept.bytes_of = t;
    EXPECT_EQ(2 * kept.bytes(), linear_shape(DType::BF16, 100, 96, 3).bytes());
  }
}

TEST(Gemm, BytesOfProductionSizes) {
  for (const auto& [t, c] : {std::pair{DType::E4M3, Case{131, 3840, 3840}},
                             {DType::I8, {131, 1536, 896}},
                             {DType::I8, {1, 9728, 896}},
                             {DType::I8, {1, 896, 4864}}}) {
    const Problem p(c, t);
    for (const TileOps* ops : all_ops())
      if (ops != &emulated_amx())
        check(p, run(p, *ops, DType::BF16, 2, t == DType::E4M3 ? t : DType::BF16, t), ops->name);
  }
}

// Bands of rows times parts of K, where columns come from memory: bit-identical to all of K at once. Rows that are
// computed, read in place (which needs a K of whole terms) and copied; bytes; several lanes and entries.
TEST(Gemm, InParts) {
  if (l2_bytes() > 2 << 20) GTEST_SKIP() << "larger products would be needed";
  struct Parts {
    Case c;
    DType source;
    std::optional<DType> bytes;
  };
  for (const auto& [c, source, bytes] : {Parts{{430, 340, 3300}, DType::F64, {}},
                                         {{448, 330, 3328}, DType::BF16, {}},
                                         {{150, 300, 4600, 2}, DType::F32, {}},
                                         {{130, 1100, 4128}, DType::BF16, DType::E4M3},
                                         {{130, 530, 4100, 1, 2, false}, DType::F64, {}}}) {
    const Problem p(c, bytes.value_or(DType::BF16));
    for (const TileOps* ops : {tile_ops(Isa::Amx), &emulated_amx()}) {
      if (!ops) continue;
      PackedShape shape = linear_shape(DType::BF16, c.n, c.k, c.lanes);
      shape.bytes_of = bytes;
      ASSERT_TRUE(GemmSchedule(shape, c.m, c.batch, 2, ops->outruns_memory).in_parts) << c.m;
      TileOps whole = *ops;
      whole.outruns_memory = false;
      const auto expected = run(p, whole, DType::BF16, 1, source, bytes);
      check(p, expected, ops->name);
      for (int threads : {1, 3}) {
        const auto out = run(p, *ops, DType::BF16, threads, source, bytes);
        EXPECT_EQ(0, std::memcmp(out.data(), expected.data(), out.size() * sizeof(float))) << ops->name << " " << c.m;
      }
    }
  }
}

// Bit-identical to columns that were packed before: one row, few, many, in parts, lanes and tails.
TEST(Gemm, PackedOnTheFly) {
  for (const Case& c :
       {Case{1, 200, 200}, {1, 600, 1200}, {17, 130, 75}, {70, 100, 96, 3}, {300, 80, 3000}, {150, 300, 4600, 2}}) {
    const Problem p(c);
    for (const TileOps* ops : all_ops())
      for (int threads : {1, 3}) {
        const auto expected = run(p, *ops, DType::BF16, threads, DType::F32);
        const auto out = run(p, *ops, DType::BF16, threads, DType::F32, {}, true);
        check(p, out, ops->name);
        EXPECT_EQ(0, std::memcmp(out.data(), expected.data(), out.size() * sizeof(float))) << ops->name << " " << c.m;
      }
  }
}

// Rows and columns whose numbers and magnitudes differ between blocks, and their i8 form.
Problem blocks_of_i8(const Case& c) {
  Problem p(c);
  for (std::vector<float>* x : {&p.a, &p.w})
    for (size_t i = 0; i < x->size(); ++i) {
      const size_t block = i % static_cast<size_t>(c.k) / kI8Block;
      (*x)[i] *= block % 5 == 4 ? 0.0f : std::ldexp(1.001f, static_cast<int>((i / 7919 + block) % 9) - 4);
    }
  const std::vector<double> rows(p.a.begin(), p.a.end()), cols(p.w.begin(), p.w.end());
  p.multiply(i8_rows(rows.data(), std::ssize(rows) / c.k, c.k, BlockScale::F32),
             i8_rows(cols.data(), std::ssize(cols) / c.k, c.k, BlockScale::F16));
  return p;
}

void check_blocks(const Case& c) {
  const Problem p = blocks_of_i8(c);
  std::vector<float> first;
  for (const TileOps* ops : all_ops())
    for (int threads : {1, 2}) {
      const auto out = run(p, *ops, DType::I8, threads, DType::F64);
      check(p, out, std::string(ops->name) + " i8");
      if (first.empty()) first = out;  // whole numbers: bit-identical on every instruction set
      EXPECT_EQ(0, std::memcmp(out.data(), first.data(), out.size() * sizeof(float))) << ops->name;
    }
}

TEST(Gemm, I8InBlocks) {
  for (int64_t m : {1, 3, 7, 17, 65})
    for (int64_t n : {1, 17, 48, 80, 130})
      for (int64_t k : {1, 31, 33, 64, 150}) check_blocks({m, n, k});
  check_blocks({70, 100, 96, 3});
  check_blocks({5, 16, 2500, 4});
  check_blocks({20, 33, 24, 1, 3, false});
  check_blocks({600, 80, 3000});
  for (const DType source : {DType::F32, DType::BF16}) {
    Problem p = blocks_of_i8({33, 40, 70});
    const auto of_hook = run(p, tile_ops(), DType::I8, 1, DType::F64);
    if (source == DType::BF16)
      for (float& x : p.a) x = bf16_value(bf16_bits(x));
    const auto of_memory = run(p, tile_ops(), DType::I8, 1, source);
    if (source == DType::F32) {
      EXPECT_EQ(of_hook, of_memory);
    }
    EXPECT_EQ(of_memory, run(p, tile_ops(), DType::I8, 1, DType::F64));
  }
}

TEST(Gemm, I8InBlocksOfProductionSizes) {
  for (const Case& c : {Case{1, 9728, 896}, Case{1, 896, 4864}, Case{16, 1536, 576}, Case{131, 1536, 896}})
    check_blocks(c);
}

TEST(Gemm, I8FaultsFail) {
  const Problem p = blocks_of_i8({50, 40, 70});
  expect_faults_fail(run(p, tile_ops(), DType::I8, 1, DType::F64),
                     [&](const std::vector<float>& out) { check(p, out, "planted"); });
}

// Values that i8 cannot represent must not become valid ones by accident.
TEST(Gemm, NoNumberIsZeroInI8) {
  const std::array<uint16_t, 32> bits{0x7fc0, bf16_bits(-127), bf16_bits(127), 0xffc0};
  std::array<int8_t, 32> out{};
  narrow_to_bytes(DType::I8, bits.data(), out.data(), 32);
  EXPECT_EQ((std::array<int, 4>{out[0], out[16], out[1], out[17]}), (std::array<int, 4>{0, -127, 127, 0}));
}

// With weights that do not fit the cache, which are read in another order: bit-identical to the row among others.
TEST(Gemm, ASingleRow) {
  for (const Case& c : {Case{3, 4000, 600}, Case{3, 1500, 600, 2}}) {
    const Problem several(c);
    for (const TileOps* ops : all_ops())
      for (DType type : kPackedTypes) {
        ASSERT_GT(linear_shape(type, c.n, c.k, c.lanes).bytes(), l2_bytes() / 4);
        const auto all = run(several, *ops, type, 2, DType::F64);
        check(several, all, ops->name);
        Problem one = several;
        one.c.m = 1;
        one.a.resize(static_cast<size_t>(c.k));
        one.expected.resize(static_cast<size_t>(c.lanes * c.n));
        for (int threads : {1, 2, 3}) {
          const auto row = run(one, *ops, type, threads, DType::F64);
          EXPECT_EQ(0, std::memcmp(row.data(), all.data(), row.size() * sizeof(float))) << ops->name << " " << threads;
        }
      }
  }
}

// With weights that fit the cache, too, and a number of columns that comes in groups of panels and a rest.
TEST(Gemm, FewRows) {
  const Problem several({9, 110, 83});
  for (const TileOps* ops : all_ops())
    for (DType type : kPackedTypes) {
      const auto all = run(several, *ops, type, 1, DType::F64);
      check(several, all, ops->name);
      for (int64_t rows = 1; rows < several.c.m; ++rows) {
        Problem few = several;
        few.c.m = rows;
        few.a.resize(static_cast<size_t>(rows * several.c.k));
        const auto first = run(few, *ops, type, 1, DType::F64);
        EXPECT_EQ(0, std::memcmp(first.data(), all.data(), static_cast<size_t>(rows * several.c.n) * sizeof(float)))
            << ops->name << " " << rows;
      }
    }
}

TEST(Gemm, LongSumsAndManyBands) {
  check_everywhere({300, 80, 3000}, {DType::F64});
  check_everywhere({2000, 72, 320}, {DType::BF16});
  check_everywhere({1111, 20, 700}, {DType::F64});
}

TEST(Gemm, ProductionSizes) {
  const Problem p({512, 1280, 1280});
  for (const TileOps* ops : all_ops())
    if (ops->isa != Isa::Amx || tile_ops(Isa::Amx) == ops)
      for (DType type : kPackedTypes) check(p, run(p, *ops, type, 2, DType::BF16), ops->name);
}

TEST(Gemm, FaultsFail) {
  const Problem p({50, 40, 30});
  expect_faults_fail(run(p, tile_ops(), DType::F32, 1, DType::F32),
                     [&](const std::vector<float>& out) { check(p, out, "planted"); });
}

TEST(Gemm, NanStaysInItsRow) {
  Problem p({20, 20, 40});
  p.a[3 * 40 + 5] = std::numeric_limits<float>::quiet_NaN();
  for (const TileOps* ops : all_ops())
    for (DType type : {DType::BF16, DType::F32, DType::I8}) {
      const auto out = run(p, *ops, type, 1, DType::F64);
      for (int r = 0; r < 20; ++r)
        for (int j = 0; j < 20; ++j) EXPECT_EQ(std::isnan(out[static_cast<size_t>(r * 20 + j)]), r == 3) << ops->name;
    }
}

TEST(Gemm, EmptyProductsDoNothing) {
  ThreadPool pool(1);
  GemmArgs args;
  args.b.shape = linear_shape(DType::F32, 4, 4);
  const auto never = [](const OutTile&) { FAIL(); };
  args.out = never;
  gemm(pool, tile_ops(), args, nullptr);
}

}  // namespace
}  // namespace tenon::cpu::test
