// Winograd convolution against fp64: tails, paddings, sources, both weight types, one and two threads; and the error
// that the header states.
#include "tenon/backend/cpu/tile/winograd.h"

#include <atomic>

#include "tests/tile/conv_problem.h"

namespace tenon::cpu::test {
namespace {

std::vector<float> run(const ConvProblem& p, const TileOps& ops, DType w_type, int threads, DType source) {
  const ConvShape& s = p.s;
  ThreadPool pool(threads);
  const Poisoned packed(winograd_weight_bytes(w_type, s.o, s.c));
  pack_winograd(pool, ops, p.w.data(), DType::F32, s.filters(), w_type, packed.get());
  EXPECT_TRUE(packed.intact());
  const std::vector<std::byte> stored = source == DType::F64 ? std::vector<std::byte>{} : stored_as(source, p.x);
  ConvHooks hooks(p);
  const auto pixels = [&](int64_t n, int64_t y, int64_t x0, int64_t x1, float* dst, int64_t ld, int) {
    hooks.pixels(n, y, x0, x1, dst, ld);
  };
  const auto tile = [&](const OutTile& t) { hooks.tile(t); };
  WinogradArgs args;
  args.shape = s;
  args.x = {source == DType::F64 ? nullptr : stored.data(), source, s.c, pixels};
  args.w = packed.get();
  args.w_type = w_type;
  args.out = tile;
  const Poisoned scratch(winograd_scratch_bytes(s, threads));
  winograd2d(pool, ops, args, scratch.get());
  EXPECT_TRUE(scratch.intact());
  hooks.expect_sane();
  return std::move(hooks.out);
}

// EXPECTs errors of at most these, relative to the root mean square of the exact outputs.
void expect_errors(const ConvProblem& p, const std::vector<float>& out, double rms, double worst,
                   const std::string& what) {
  double squares = 0, total = 0;
  for (size_t i = 0; i < p.expected.size(); ++i) {
    squares += (out.at(i) - p.expected[i]) * (out[i] - p.expected[i]);
    total += p.expected[i] * p.expected[i];
  }
  const double size = std::sqrt(total / static_cast<double>(p.expected.size()));
  const testing::AssertionResult near = close(out, p.expected, Tolerance{worst * size});
  EXPECT_TRUE(near && std::sqrt(squares / total) <= rms)
      << what << " " << describe(p.s) << ", relative rms " << std::sqrt(squares / total) << ", " << near.message();
}

void check_everywhere(const ConvShape& s, std::initializer_list<DType> sources) {
  const ConvProblem p(s);
  for (const TileOps* ops : all_ops())
    for (DType w_type : {DType::F32, DType::F16})
      for (DType source : sources) {
        const auto one = run(p, *ops, w_type, 1, source), two = run(p, *ops, w_type, 2, source);
        const bool exact = w_type == DType::F32;
        expect_errors(p, one, exact ? 5e-6 : 2e-3, exact ? 4e-5 : 2e-2, ops->name);
        EXPECT_EQ(0, std::memcmp(one.data(), two.data(), one.size() * sizeof(float))) << "threads: " << describe(s);
      }
}

TEST(Winograd, Sizes) {
  for (int64_t size : {1, 3, 4, 5, 8, 17})
    for (int64_t c : {1, 16, 35})
      for (int64_t o : {3, 40, 80}) check_everywhere({2, size, size + 2, c, o}, {DType::F64});
}

TEST(Winograd, WideImages) {
  for (int64_t width : {64, 66, 130}) check_everywhere({1, 9, width, 20, 24}, {DType::F64, DType::BF16});
  check_everywhere({1, 70, 64, 33, 16}, {DType::F32});
}

TEST(Winograd, Pads) {
  check_everywhere({1, 9, 12, 16, 8, 3, 3, 1, 0, 0, 0, 0}, {DType::F64});
  check_everywhere({1, 9, 12, 16, 8, 3, 3, 1, 2, 0, 1, 3}, {DType::F64});
  // Whole blocks of columns within the padding, or rows.
  check_everywhere({1, 9, 12, 16, 8, 3, 3, 1, 1, 1, 1, 90}, {DType::F64, DType::F32});
  check_everywhere({1, 9, 12, 16, 8, 3, 3, 1, 1, 90, 1, 1}, {DType::F64, DType::F32});
  check_everywhere({1, 9, 12, 16, 8, 3, 3, 1, 40, 1, 60, 1}, {DType::F64});
}

TEST(Winograd, ErrorIsWhatTheHeaderSays) {
  const ConvProblem p({1, 32, 32, 320, 320});
  for (int i = 0; i < kIsaCount; ++i)
    if (const TileOps* ops = tile_ops(static_cast<Isa>(i))) {
      expect_errors(p, run(p, *ops, DType::F32, 2, DType::F64), 2.5e-6, 2.5e-5, ops->name);
      expect_errors(p, run(p, *ops, DType::F16, 2, DType::F64), 1.5e-3, 2e-2, ops->name);
    }
}

TEST(Winograd, WeightsOfEverySize) {
  for (float size : {1e-6f, 1.0f, 1e6f}) {
    ConvProblem p({1, 8, 8, 16, 16});
    for (float& w : p.w) w *= size;
    for (double& x : p.expected) x *= size;
    for (const TileOps* ops : all_ops())
      expect_errors(p, run(p, *ops, DType::F16, 1, DType::F64), 2e-3, 2e-2, ops->name);
  }
}

TEST(Winograd, FaultsFail) {
  const ConvProblem p({1, 9, 12, 16, 8});
  expect_faults_fail(run(p, tile_ops(), DType::F32, 1, DType::F64),
                     [&](const std::vector<float>& out) { expect_errors(p, out, 5e-6, 4e-5, "planted"); });
}

TEST(Winograd, Legality) {
  EXPECT_TRUE(winograd_legal({1, 8, 8, 16, 16}));
  EXPECT_FALSE(winograd_legal({1, 8, 8, 16, 16, 3, 3, 2}));
  EXPECT_FALSE(winograd_legal({1, 8, 8, 16, 16, 1, 1, 1, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace tenon::cpu::test
