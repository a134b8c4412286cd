// conv2d against fp64: layouts, strides, paddings, tails, sources, every instruction set, one and two threads.
#include "tenon/backend/cpu/tile/conv.h"

#include <atomic>

#include "support.h"

namespace tenon::cpu::test {
namespace {

struct Problem {
  ConvShape s;
  std::vector<float> x, w;              // NHWC, [o, c, kh, kw]
  std::vector<float> by_tap;            // [kh, kw, c, o]
  std::vector<double> expected, bound;  // [n, out_h, out_w, o]

  explicit Problem(const ConvShape& shape) : s(shape) {
    x = random_bf16_values(s.n * s.h * s.w * s.c, 1);
    w = random_bf16_values(s.o * s.c * s.kh * s.kw, 2);
    by_tap.resize(w.size());
    const int64_t taps = int64_t{s.kh} * s.kw;
    for (int64_t o = 0; o < s.o; ++o)
      for (int64_t i = 0; i < s.c * taps; ++i)
        by_tap[static_cast<size_t>((i % taps * s.c + i / taps) * s.o + o)] = w[static_cast<size_t>(o * s.c * taps + i)];
    expected.assign(static_cast<size_t>(s.out_pixels() * s.o), 0);
    bound = expected;
    for (int64_t p = 0; p < s.out_pixels(); ++p) pixel(p);
  }

  // All output channels of pixel p; they are the innermost loop, over weights [ky, kx, c, o].
  void pixel(int64_t p) {
    const int64_t ox = p % s.out_w(), oy = p / s.out_w() % s.out_h(), n = p / s.out_w() / s.out_h();
    double* sum = expected.data() + p * s.o;
    double* size = bound.data() + p * s.o;
    for (int ky = 0; ky < s.kh; ++ky)
      for (int kx = 0; kx < s.kw; ++kx) {
        const int64_t y = oy * s.stride + ky - s.pad_t, xx = ox * s.stride + kx - s.pad_l;
        if (y < 0 || y >= s.h || xx < 0 || xx >= s.w) continue;
        const float* pixels = x.data() + ((n * s.h + y) * s.w + xx) * s.c;
        const float* taps = by_tap.data() + (ky * s.kw + kx) * s.c * s.o;
        for (int64_t c = 0; c < s.c; ++c)
          for (int64_t o = 0; o < s.o; ++o) {
            const double v = static_cast<double>(pixels[c]) * taps[c * s.o + o];
            sum[o] += v;
            size[o] += std::abs(v);
          }
      }
    for (int64_t o = 0; o < s.o; ++o) size[o] = sum_tolerance(s.c * s.kh * s.kw, size[o]);
  }
};

std::vector<float> run(const Problem& p, const TileOps& ops, DType type, int threads, DType source) {
  const ConvShape& s = p.s;
  ThreadPool pool(threads);
  const PackedShape shape = conv_shape(type, s.o, s.c, s.kh, s.kw);
  const Poisoned packed(shape.bytes());
  pack_conv(pool, ops, p.w.data(), DType::F32, s.o, s.c, s.kh, s.kw, type, packed.get());
  const std::vector<std::byte> stored = source == DType::F64 ? std::vector<std::byte>{} : stored_as(source, p.x);
  std::atomic<bool> outside{false};
  const auto pixels = [&](int64_t n, int64_t y, int64_t x0, int64_t x1, float* dst, int64_t ld, int) {
    if (n < 0 || n >= s.n || y < 0 || y >= s.h || x0 < 0 || x1 > s.w || x0 >= x1) outside = true;
    for (int64_t x = x0; x < x1; ++x)
      std::memcpy(dst + (x - x0) * ld, p.x.data() + ((n * s.h + y) * s.w + x) * s.c,
                  static_cast<size_t>(s.c) * sizeof(float));
  };
  std::vector<float> out(p.expected.size(), std::numeric_limits<float>::quiet_NaN());
  std::atomic<bool> twice{false};
  const auto tile = [&](const OutTile& t) {
    for (int r = 0; r < t.rows; ++r)
      for (int j = 0; j < t.cols; ++j) {
        float& to = out[static_cast<size_t>((t.row0 + r) * s.o + t.col0 + j)];
        if (!std::isnan(to)) twice = true;
        to = t.acc[0][r * t.ld + j];
      }
  };
  ConvArgs args;
  args.shape = s;
  args.x = {source == DType::F64 ? nullptr : stored.data(), source, s.c, pixels};
  args.w = {shape, packed.get()};
  args.out = tile;
  const Poisoned scratch(conv_scratch_bytes(s, type, threads));
  conv2d(pool, ops, args, scratch.get());
  EXPECT_TRUE(scratch.intact());
  EXPECT_FALSE(outside) << "the prologue was asked for a pixel outside the image";
  EXPECT_FALSE(twice) << "an element came twice";
  return out;
}

std::string describe(const ConvShape& s) {
  std::ostringstream text;
  text << "[" << s.n << "," << s.h << "," << s.w << "," << s.c << "] -> " << s.o << ", " << s.kh << "x" << s.kw << " / "
       << s.stride << " pads " << s.pad_t << s.pad_l << s.pad_b << s.pad_r;
  return text.str();
}

void check(const Problem& p, const std::vector<float>& out, const std::string& what) {
  double worst = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double ratio = std::abs(out[i] - p.expected[i]) / p.bound[i];
    if (!(ratio <= worst)) worst = ratio;
  }
  EXPECT_LE(worst, 1.0) << what << " " << describe(p.s);
}

void check_everywhere(const ConvShape& s, std::initializer_list<DType> sources) {
  const Problem p(s);
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
  check_everywhere({1, 20, 20, 3, 8, 7, 7, 2, 3, 3, 3, 3}, {DType::F64});
}

TEST(Conv, OddKernelsAndPads) {
  check_everywhere({1, 9, 40, 16, 8, 5, 3, 1, 2, 0, 1, 3}, {DType::F64});
  check_everywhere({1, 9, 12, 16, 8, 2, 4, 1, 0, 3, 2, 1}, {DType::F64});
  check_everywhere({1, 4, 4, 17, 5, 4, 4, 4, 0, 0, 0, 0}, {DType::F64});
}

TEST(Conv, ManyBlocks) {
  check_everywhere({1, 70, 64, 320, 16}, {DType::F64});
  check_everywhere({1, 12, 192, 512, 8}, {DType::BF16});
  check_everywhere({1, 130, 130, 64, 4}, {DType::F64});
}

TEST(Conv, ProductionSizes) {
  for (const ConvShape& s : {ConvShape{1, 16, 16, 1280, 1280}, ConvShape{1, 64, 64, 320, 320}}) {
    const Problem p(s);
    for (int i = 0; i < kIsaCount; ++i)
      if (const TileOps* ops = tile_ops(static_cast<Isa>(i)))
        for (DType type : kPackedTypes) check(p, run(p, *ops, type, 2, DType::BF16), ops->name);
  }
}

}  // namespace
}  // namespace tenon::cpu::test
