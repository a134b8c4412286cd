// conv2d against fp64: layouts, strides, paddings, tails, sources, every instruction set, one and two threads.
#include "tenon/backend/cpu/tile/conv.h"

#include <atomic>

#include "tests/tile/conv_problem.h"

namespace tenon::cpu::test {
namespace {

std::vector<float> run(const ConvProblem& p, const TileOps& ops, DType type, int threads, DType source) {
  const ConvShape& s = p.s;
  ThreadPool pool(threads);
  const PackedShape shape = conv_shape(type, s.filters());
  const Poisoned packed(shape.bytes());
  pack_conv(pool, ops, p.w.data(), DType::F32, s.filters(), type, packed.get());
  const std::vector<std::byte> stored = source == DType::F64 ? std::vector<std::byte>{} : stored_as(source, p.x);
  ConvHooks hooks(p);
  const auto pixels = [&](int64_t n, int64_t y, int64_t x0, int64_t x1, float* dst, int64_t ld, int) {
    hooks.pixels(n, y, x0, x1, dst, ld);
  };
  const auto tile = [&](const OutTile& t) { hooks.tile(t); };
  ConvArgs args;
  args.shape = s;
  args.x = {source == DType::F64 ? nullptr : stored.data(), source, s.c, pixels};
  args.w = {shape, packed.get()};
  args.out = tile;
  const Poisoned scratch(conv_scratch_bytes(s, type, threads));
  conv2d(pool, ops, args, scratch.get());
  EXPECT_TRUE(scratch.intact());
  hooks.expect_sane();
  return std::move(hooks.out);
}

void check(const ConvProblem& p, const std::vector<float>& out, const std::string& what) {
  EXPECT_TRUE(within(out, p.expected, p.bound)) << what << " " << describe(p.s);
}

void check_everywhere(const ConvShape& s, std::initializer_list<DType> sources) {
  const ConvProblem p(s);
  for (const TileOps* ops : all_ops())
    for (DType type : kPackedTypes)
      for (DType source : sources) {
        const auto one = run(p, *ops, type, 1, source), two = run(p, *ops, type, 2, source);
        check(p, one,
              std::string(ops->name) + " " + std::string(name_of(type)) + " from " + std::string(name_of(source)));
        EXPECT_EQ(0, std::memcmp(one.data(), two.data(), one.size() * sizeof(float))) << "threads: " << describe(s);
      }
}

TEST(Conv, ThreeByThree) {
  for (int64_t size : {1, 2, 5, 8, 16, 33})
    for (int64_t c : {16, 35})
      for (int64_t o : {3, 16, 40}) check_everywhere({2, size, size, c, o}, {DType::F64});
}

TEST(Conv, RunsWithinRows) {
  for (int64_t width : {32, 48, 64, 79, 96, 130}) check_everywhere({1, 5, width, 33, 20}, {DType::F64, DType::BF16});
}

TEST(Conv, Strides) {
  for (int64_t width : {7, 16, 31, 64, 100, 128})
    for (int stride : {2, 3}) {
      check_everywhere({2, 9, width, 20, 17, 3, 3, stride, 1, 1, 1, 1}, {DType::F64, DType::F32});
      check_everywhere({1, 10, width, 20, 17, 3, 3, stride, 0, 0, 1, 1}, {DType::F64});
    }
}

TEST(Conv, OneByOne) {
  for (int stride : {1, 2})
    for (int64_t width : {3, 16, 70})
      check_everywhere({2, 6, width, 40, 33, 1, 1, stride, 0, 0, 0, 0}, {DType::F64, DType::F16});
}

TEST(Conv, FewChannels) {
  for (int64_t c : {1, 3, 4, 15})
    for (int64_t width : {4, 66})
      for (int stride : {1, 2})
        check_everywhere({2, 7, width, c, 18, 3, 3, stride, 1, 1, 1, 1}, {DType::F64, DType::BF16});
  check_everywhere({1, 20, 20, 3, 8, 7, 7, 2, 3, 3, 3, 3}, {DType::F64, DType::F16});
  check_everywhere({1, 30, 45, 11, 20, 5, 5, 5, 2, 2, 2, 2}, {DType::F64, DType::F32});
}

TEST(Conv, OddKernelsAndPads) {
  check_everywhere({1, 9, 40, 16, 8, 5, 3, 1, 2, 0, 1, 3}, {DType::F64});
  check_everywhere({1, 9, 12, 16, 8, 2, 4, 1, 0, 3, 2, 1}, {DType::F64});
  check_everywhere({1, 4, 4, 17, 5, 4, 4, 4, 0, 0, 0, 0}, {DType::F64});
}

// Whole blocks of columns lie within the padding, in rows, shifted copies and im2col.
TEST(Conv, PadsWiderThanBlocks) {
  for (const auto& [left, right] : {std::pair<int, int>{600, 1}, {1, 600}})
    for (int stride : {1, 2})
      for (int64_t c : {3, 16, 512}) check_everywhere({1, 3, 12, c, 4, 3, 3, stride, 1, left, 1, right}, {DType::F32});
}

TEST(Conv, ManyBlocks) {
  check_everywhere({1, 70, 64, 320, 16}, {DType::F64});
  check_everywhere({1, 12, 192, 512, 8}, {DType::BF16});
  check_everywhere({1, 130, 130, 64, 4}, {DType::F64});
}

TEST(Conv, FaultsFail) {
  const ConvProblem p({1, 9, 12, 16, 8});
  expect_faults_fail(run(p, tile_ops(), DType::F32, 1, DType::F64),
                     [&](const std::vector<float>& out) { check(p, out, "planted"); });
}

TEST(Conv, ProductionSizes) {
  for (const ConvShape& s : {ConvShape{1, 16, 16, 1280, 1280}, ConvShape{1, 64, 64, 320, 320}}) {
    const ConvProblem p(s);
    for (int i = 0; i < kIsaCount; ++i)
      if (const TileOps* ops = tile_ops(static_cast<Isa>(i)))
        for (DType type : kPackedTypes) check(p, run(p, *ops, type, 2, DType::BF16), ops->name);
  }
}

}  // namespace
}  // namespace tenon::cpu::test
