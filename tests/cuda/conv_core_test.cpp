// conv_mma on the emulator against sums in double: windows, strides, paddings, tails, splits, joined inputs.
#include <sstream>

#include "tests/cuda/core_harness.h"

namespace tenon::cuda::test {
namespace {

struct Params {
  device::ConvSizes sizes;
  const void *a, *a2, *b;
  float* y;
  int first_channels;  ///< in a; the rest are in a2
};

struct Variant {
  MmaTileShape tile{64, 64, 2, 2, 128, 3};
  DType type = DType::BF16;
  int lanes = 1, width = 8;
  int operand_bytes = 16;
  int first_channels = 0;  ///< two joined inputs, unless it is zero
};

// Pixels whose channels come from two tensors.
std::string joined_operand(const std::string& t, int width) {
  return "struct A {\n  using T = " + t + ";\n  static constexpr int kWidth = " + std::to_string(width) + R"(;
  struct Row { const T *first, *second; int split; };
  DEV static Row row(const Params& p, int r) {
    const int split = p.first_channels;
    return {p.a + static_cast<int64_t>(r) * split,
            p.a2 + static_cast<int64_t>(r) * (p.sizes.channels - split) - split, split};
  }
  DEV static const T* at(const Row& row, int col) { return (col < row.split ? row.first : row.second) + col; }
};
)";
}

std::string source_of(const Variant& v) {
  const std::string t = element_name(v.type);
  const int width = v.operand_bytes / static_cast<int>(size_of(v.type));
  return "#include \"tenon/backend/cuda/device/convolutions/conv_mma.h\"\nusing namespace tenon::device;\nstruct "
         "Params { ConvSizes "
         "sizes; "
         "const " +
         t + " *a, *a2, *b; float* y; int first_channels; };\n" +
         (v.first_channels > 0 ? joined_operand(t, width) : operand("A", v.type, "a", "p.sizes.channels", width)) +
         operand("B", v.type, "b", "p.sizes.channels * p.sizes.kernel_h * p.sizes.kernel_w", width) +
         epilogue(v.lanes, v.width, "p.sizes.outputs / kLanes") + "using Tile = " + v.tile.type() +
         ";\nKERNEL(Tile::kThreads, 1, Params, p) { conv_mma<Tile, A, B, Epilogue>(p); }\n";
}

// The sum over one window, and the sum of absolute values of its terms.
struct Windows {
  const device::ConvSizes& c;
  const std::vector<float>&a, &a2, &b;
  int first_channels;

  double value(int64_t pixel, int channel) const {
    const int split = first_channels > 0 ? first_channels : c.channels;
    return channel < split ? a[static_cast<size_t>(pixel * split + channel)]
                           : a2[static_cast<size_t>(pixel * (c.channels - split) + channel - split)];
  }
  double sum(int image, int y, int x, int output) const {
    double total = 0;
    for (int i = 0; i < c.kernel_h; ++i)
      for (int j = 0; j < c.kernel_w; ++j) {
        const int py = y * c.stride - c.pad_top + i, px = x * c.stride - c.pad_left + j;
        if (py < 0 || py >= c.height || px < 0 || px >= c.width) continue;
        const int64_t pixel = (static_cast<int64_t>(image) * c.height + py) * c.width + px;
        const int64_t weight = ((static_cast<int64_t>(output) * c.kernel_h + i) * c.kernel_w + j) * c.channels;
        for (int ch = 0; ch < c.channels; ++ch) total += value(pixel, ch) * b[static_cast<size_t>(weight + ch)];
      }
    return total;
  }
};

// A random problem, and the check of its result.
struct Problem {
  DType type;
  int lanes;
  device::ConvSizes c;
  int first_channels;  ///< of two joined inputs, or all channels
  int64_t pixels = static_cast<int64_t>(c.batch) * c.height * c.width;
  int64_t rows = static_cast<int64_t>(c.batch) * c.out_height * c.out_width;
  int k = c.kernel_h * c.kernel_w * c.channels, columns = c.outputs / lanes;
  Emulator memory = Emulator();
  RandomTensor a{memory, type, pixels*first_channels, 1}, a2{memory, type, pixels*(c.channels - first_channels), 2};
  RandomTensor b{memory, type, static_cast<int64_t>(c.outputs) * k, 3};

  std::string name() const {
    std::ostringstream text;
    text << c.batch << " of " << c.height << "x" << c.width << "x" << c.channels << " -> " << c.out_height << "x"
         << c.out_width << "x" << c.outputs << " window " << c.kernel_h << "x" << c.kernel_w << " stride " << c.stride
         << " splits " << c.split.splits;
    return text.str();
  }
  void compare(const std::vector<float>& y) const {
    const Windows windows{c, a.values, a2.values, b.values, first_channels};
    std::vector<double> wanted, allowed;
    for (int64_t row = 0; row < rows; ++row)
      for (int col = 0; col < columns; ++col) {
        const int64_t line = row / c.out_width, image = line / c.out_height;
        double want = 1, size = 1;
        for (int lane = 0; lane < lanes; ++lane) {
          const double sum = windows.sum(static_cast<int>(image), static_cast<int>(line % c.out_height),
                                         static_cast<int>(row % c.out_width), lane * columns + col);
          want *= sum, size *= std::abs(sum) + std::sqrt(k);
        }
        want += static_cast<double>(row) + 0.5 * col;
        wanted.push_back(want);
        allowed.push_back(0x1p-24 * (std::sqrt(k) * 4 * size + 2 * std::abs(want)) + stage_error(type) * size);
      }
    EXPECT_TRUE(close(y, wanted, [&](size_t i, double) { return allowed[i]; }));
  }
};

void check(const Variant& v, const device::ConvSizes& c) {
  const int first = v.first_channels > 0 ? v.first_channels : c.channels;
  const Problem problem{v.type, v.lanes, c, first};
  SCOPED_TRACE(v.tile.type() + " " + problem.name());
  problem.compare(
      run_core<Params>("conv", source_of(v), conv_needs(v.tile, c, v.lanes),
                       {c, problem.a.memory.get(), problem.a2.memory.get(), problem.b.memory.get(), nullptr, first},
                       problem.rows * problem.columns));
}

// A window of size x size with `pad` at the top and left, and as many outputs as `pad_end` at the bottom and right
// allows.
device::ConvSizes sizes_of(int batch, int height, int width, int channels, int outputs, int size, int stride, int pad,
                           int pad_end) {
  return {.batch = batch,
          .height = height,
          .width = width,
          .channels = channels,
          .out_height = (height + pad + pad_end - size) / stride + 1,
          .out_width = (width + pad + pad_end - size) / stride + 1,
          .outputs = outputs,
          .kernel_h = size,
          .kernel_w = size,
          .stride = stride,
          .pad_top = pad,
          .pad_left = pad};
}

TEST(ConvCore, ThreeByThree) {
  for (const MmaTileShape& tile : {MmaTileShape{64, 64, 2, 2, 128, 3}, MmaTileShape{128, 128, 2, 2, 64, 4}}) {
    Emulator::statistics() = {};
    check({tile}, sizes_of(2, 9, 7, 64, 72, 3, 1, 1, 1));
    EXPECT_EQ(Emulator::statistics().bank_conflicts, 0);
  }
}
TEST(ConvCore, FaultsFail) {
  const device::ConvSizes c = sizes_of(1, 6, 7, 24, 40, 3, 1, 1, 1);
  const Problem problem{DType::BF16, 1, c, c.channels};
  const Variant v;
  const std::vector<float> y = run_core<Params>(
      "conv", source_of(v), conv_needs(v.tile, c, 1),
      {c, problem.a.memory.get(), problem.a2.memory.get(), problem.b.memory.get(), nullptr, c.channels},
      problem.rows * problem.columns);
  expect_faults_fail(y, [&](const std::vector<float>& out) { problem.compare(out); });
}
TEST(ConvCore, StrideTwoWithPaddingAtTheEnd) {
  check({}, sizes_of(2, 10, 12, 64, 24, 3, 2, 0, 1));
  check({}, sizes_of(1, 11, 9, 32, 24, 3, 2, 1, 1));
}
TEST(ConvCore, OneByOne) {
  check({}, sizes_of(1, 8, 9, 72, 64, 1, 1, 0, 0));
  check({}, sizes_of(1, 9, 9, 64, 8, 1, 2, 0, 0));
}
TEST(ConvCore, ChannelsThatAreNoMultipleOfAStep) {
  for (int channels : {8, 24, 40, 72, 136}) check({}, sizes_of(1, 6, 7, channels, 40, 3, 1, 1, 1));
  device::ConvSizes tall = sizes_of(1, 12, 7, 24, 16, 3, 1, 1, 1);
  tall.kernel_h = 5, tall.out_height = 10;
  check({}, tall);
}
TEST(ConvCore, FewChannels) {
  check({.operand_bytes = 8}, sizes_of(1, 9, 9, 4, 64, 3, 1, 1, 1));
  check({.operand_bytes = 4}, sizes_of(1, 9, 9, 2, 16, 3, 1, 1, 1));
  check({.width = 4}, sizes_of(1, 9, 9, 16, 4, 3, 1, 1, 1));
}
TEST(ConvCore, SplitsSumInOrder) {
  for (int splits : {2, 3, 4}) {
    device::ConvSizes sizes = sizes_of(2, 5, 6, 72, 72, 3, 1, 1, 1);
    sizes.split.splits = splits;
    check({}, sizes);
  }
}
TEST(ConvCore, TwoInputsJoined) {
  check({.first_channels = 24}, sizes_of(1, 6, 7, 64, 40, 3, 1, 1, 1));
  check({.first_channels = 64}, sizes_of(2, 6, 5, 96, 40, 3, 1, 1, 1));
}
TEST(ConvCore, OtherElementsAndLanes) {
  check({.type = DType::F16}, sizes_of(1, 9, 7, 64, 72, 3, 1, 1, 1));
  check({.type = DType::E4M3}, sizes_of(1, 9, 7, 48, 72, 3, 1, 1, 1));
  check({.lanes = 2}, sizes_of(1, 9, 7, 40, 48, 3, 1, 1, 1));
}

TEST(ConvCore, F32) {
  for (const MmaTileShape& tile :
       {MmaTileShape{128, 64, 2, 2, 128, 3}, {64, 64, 2, 2, 64, 4}, {32, 32, 1, 2, 128, 4}}) {
    check({.tile = tile, .type = DType::F32, .width = 4}, sizes_of(2, 9, 13, 20, 72, 3, 1, 1, 1));
    check({.tile = tile, .type = DType::F32, .width = 1, .first_channels = 4}, sizes_of(1, 10, 12, 12, 3, 3, 2, 0, 1));
  }
  check({.tile = {64, 64, 2, 2, 64, 4}, .type = DType::F32, .width = 4}, sizes_of(1, 16, 16, 128, 64, 3, 1, 1, 1));
}

// conv_wgmma.
struct HopperParams {
  device::ConvSizes sizes;
  TensorMap a, a2, b;
  int first_channels;
  float* y;
};

struct HopperVariant {
  WgmmaTileShape tile;
  DType type = DType::BF16;
  int lanes = 1;
  int first_channels = 0;  ///< two joined inputs, unless it is zero
};

void check(const HopperVariant& v, device::ConvSizes c) {
  choose_box(v.tile.m, c);
  const int first = v.first_channels > 0 ? v.first_channels : c.channels;
  const Problem problem{v.type, v.lanes, c, first};
  SCOPED_TRACE(v.tile.type() + " " + problem.name());
  const auto bytes = static_cast<int>(size_of(v.type));
  ASSERT_TRUE(conv_fits_boxes(c, bytes));
  const std::string t = element_name(v.type);
  const std::string source =
      "#include \"tenon/backend/cuda/device/convolutions/conv_wgmma.h\"\nusing namespace tenon::device;\n"
      "struct Params { ConvSizes sizes; TensorMap a, a2, b; int first_channels; float* y; };\n"
      "struct A { using T = " +
      t +
      "; static constexpr bool kConstant = false; DEV static TmaSource source(const Params& p, int col) {\n"
      "  return col < p.first_channels ? TmaSource{p.a, col} : TmaSource{p.a2, col - p.first_channels}; } };\n"
      "struct B { using T = " +
      t +
      "; static constexpr bool kConstant = true, kPermuted = false; DEV static TmaSource source(const Params& p, int "
      "col) { return {p.b, "
      "col}; } };\n" +
      epilogue(v.lanes, 8, "p.sizes.outputs / kLanes") + "using Tile = " + v.tile.type() +
      ";\nKERNEL(Tile::kThreads, 1, Params, p) { conv_wgmma<Tile, A, B, Epilogue>(p); }\n";
  HopperParams params{};
  params.sizes = c, params.first_channels = first;
  params.a = problem.memory.encode(pixels_box(problem.a.memory.get(), bytes, c, first));
  if (first < c.channels)
    params.a2 = problem.memory.encode(pixels_box(problem.a2.memory.get(), bytes, c, c.channels - first));
  params.b = problem.memory.encode(permuting_taps_box(problem.b.memory.get(), bytes, c, c.outputs));
  problem.compare(run_core("conv", source, conv_needs(v.tile, c, v.lanes, 3), params, problem.rows * problem.columns));
}

TEST(ConvHopper, ThreeByThree) {
  for (const WgmmaTileShape& tile :
       {WgmmaTileShape{64, 64, 4}, {128, 160, 4}, {256, 96, 3}, {64, 64, 4, 1, 2}, {128, 64, 3, 1, 2}})
    for (const auto& [height, width] : {std::pair{8, 8}, {9, 7}, {16, 20}})
      check(HopperVariant{tile}, sizes_of(2, height, width, 64, 72, 3, 1, 1, 1));
}
TEST(ConvHopper, ChannelsThatAreNoMultipleOfAStep) {
  for (int channels : {8, 24, 72, 136}) check(HopperVariant{{64, 64, 4}}, sizes_of(1, 6, 7, channels, 40, 3, 1, 1, 1));
}
TEST(ConvHopper, StrideTwo) {
  check(HopperVariant{{64, 64, 4}}, sizes_of(2, 10, 12, 64, 24, 3, 2, 0, 1));
  check(HopperVariant{{64, 64, 4}}, sizes_of(1, 16, 8, 128, 24, 3, 2, 1, 1));
}
TEST(ConvHopper, OneByOneAndSplits) {
  check(HopperVariant{{64, 64, 4}}, sizes_of(1, 8, 9, 72, 64, 1, 1, 0, 0));
  for (int splits : {2, 3}) {
    device::ConvSizes sizes = sizes_of(2, 5, 6, 72, 72, 3, 1, 1, 1);
    sizes.split.splits = splits;
    check(HopperVariant{{64, 64, 4}}, sizes);
  }
  device::ConvSizes sizes = sizes_of(2, 5, 6, 72, 72, 3, 1, 1, 1);
  sizes.split.splits = 4;
  check(HopperVariant{{.m = 64, .n = 64, .stages = 6, .along_k = 4}}, sizes);
}
TEST(ConvHopper, TwoInputsJoinedLanesAndElements) {
  check(HopperVariant{{64, 64, 4}, DType::BF16, 1, 64}, sizes_of(1, 6, 7, 96, 40, 3, 1, 1, 1));
  check(HopperVariant{{128, 128, 4}, DType::F16, 2}, sizes_of(1, 9, 7, 40, 48, 3, 1, 1, 1));
  check(HopperVariant{{64, 64, 4}, DType::E4M3}, sizes_of(1, 9, 7, 48, 72, 3, 1, 1, 1));
}

}  // namespace
}  // namespace tenon::cuda::test
