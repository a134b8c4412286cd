// Which tile a product runs on: choices as text, what the device and the product allow, and the tables of measurements,
// the one shipped with Tenon and this machine's file.
#include "tenon/backend/cuda/products/tile_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tenon/backend/cuda/libraries/dnn_choice.h"
#include "tenon/backend/cuda/products/mma_tile.h"
#include "tenon/backend/cuda/products/skinny_tile.h"
#include "tenon/backend/cuda/products/tile_table.h"
#include "tenon/backend/cuda/products/wgmma_tile.h"
#include "tenon/core/error.h"
#include "tests/cuda/tiles_folder.h"

namespace tenon::cuda {
namespace {
using testing::HasSubstr;

const DeviceFacts kH200 = {.name = "NVIDIA H200",
                           .arch = "sm_90a",
                           .multiprocessors = 132,
                           .shared_bytes = 227 * 1024,
                           .memory_bytes = int64_t{139} << 30,
                           .argument_bytes = kMaxArgumentBytes};
const DeviceFacts kL4 = {.name = "NVIDIA L4", .arch = "sm_89", .multiprocessors = 58, .shared_bytes = 99 * 1024};

ProductShape gemm(int64_t m, int64_t n, int64_t k, int lanes = 1) {
  return {.m = m,
          .n = n,
          .k = k,
          .lanes = lanes,
          .boxed_tiles_m = [m](int rows) { return div_up(m, rows); },
          .key = "gemm of a test"};
}

// The product that a table line names: what product kernels ask for under this key.
ProductShape product_named(const std::string& key) {
  ProductShape p;
  p.key = key;
  long long m = 0, n = 0, k = 0, batch = 0, bytes = 0;
  if (std::sscanf(key.c_str(), "gemm %lldx%lldx%lld batch %lld lanes %d bytes %lld", &m, &n, &k, &batch, &p.lanes,
                  &bytes) == 6) {
    p.m = m, p.n = n, p.k = k, p.batch = batch, p.element_bytes = bytes;
    p.boxed_tiles_m = [m](int rows) { return div_up(m, rows); };
    return p;
  }
  device::ConvSizes c;
  const bool twice = key.starts_with("conv2d of twice ");
  const std::string sizes = key.substr(std::min(key.size(), twice ? sizeof("conv2d of twice ") - 1 : 7));
  const int read = std::sscanf(sizes.c_str(), "%dx%dx%dx%d -> %dx%dx%d by %dx%dx%d lanes %d bytes %lld", &c.batch,
                               &c.height, &c.width, &c.channels, &c.out_height, &c.out_width, &c.outputs, &c.kernel_h,
                               &c.kernel_w, &c.stride, &p.lanes, &bytes);
  if (!key.starts_with("conv2d ") || read != 12) return p;
  c.phases = twice ? 2 : 1;
  p.m = int64_t{c.batch} * c.out_height * c.out_width;
  p.n = int64_t{c.outputs} * c.phases * c.phases;
  p.k = int64_t{c.kernel_h} * c.kernel_w * c.channels;
  p.element_bytes = bytes;
  p.in_memory = !twice;
  if (conv_fits_boxes(c, static_cast<int>(bytes)))
    p.boxed_tiles_m = [c](int rows) {
      device::ConvSizes boxed = c;
      choose_box(rows, boxed);
      return div_up(c.out_width, boxed.box_width) * div_up(c.out_height, boxed.box_height) *
             div_up(c.batch, boxed.box_images);
    };
  return p;
}

std::set<std::string> texts(const std::vector<TileChoice>& choices) {
  std::set<std::string> out;
  for (const TileChoice& c : choices) out.insert(c.text());
  return out;
}
bool is_of(const TileChoice& c, std::string_view core) { return c.core->name() == core; }
bool any_of_core(const std::vector<TileChoice>& choices, std::string_view core) {
  return std::any_of(choices.begin(), choices.end(), [&](const TileChoice& c) { return is_of(c, core); });
}

// Its own folder with the cache folder in it, no requested core, and all warnings in `warnings_`.
using Tiles = TilesFolder;

TEST_F(Tiles, EveryChoiceIsReadBackFromItsText) {
  std::set<std::string> seen;
  for (const ProductShape& p : {gemm(8192, 320, 320), gemm(64, 1280, 5120), gemm(2048, 5120, 640, 2)})
    for (const TileChoice& c : tile_choices(p, kH200)) {
      const std::string text = c.text();
      const std::optional<TileChoice> back = TileChoice::parse(text);
      ASSERT_TRUE(back) << text;
      EXPECT_EQ(back->core, c.core) << text;
      EXPECT_EQ(back->splits, c.splits) << text;
      EXPECT_EQ(back->text(), text);
      if (is_of(c, "mma")) {
        EXPECT_EQ(back->as<MmaTileShape>().type(), c.as<MmaTileShape>().type());
      } else {
        EXPECT_EQ(back->as<WgmmaTileShape>().type(), c.as<WgmmaTileShape>().type());
      }
      seen.insert(text);
    }
  EXPECT_TRUE(seen.contains("mma 128x128 warps 2x4 bytes 64 stages 4 splits 1"));
  EXPECT_TRUE(seen.contains("wgmma 128x160 stages 6 resident 1 cluster 1 splits 1"));
}

TEST_F(Tiles, TextThatIsNoChoiceIsRefused) {
  for (const char* text :
       {"", "simt", "wgmma", "mma", "imma 128x128", "wgmma 128x160 stages 5 resident 1 splits 1",  // without a cluster
        "wgmma 128x160 stages 5 resident 1 cluster 1 splits", "wgmma 128x160 stages 5 resident 1 cluster 1 splits x",
        "wgmma 128x160 stages 5 resident 1 cluster 1 splits 1 and more",
        "wgmma 128x160 stages 5 resident 1 cluster 1  splits 1",  // another blank
        "wgmma 128x160 parts 5 resident 1 cluster 1 splits 1", "wgmma 128*160 stages 5 resident 1 cluster 1 splits 1",
        "wgmma 128x99999999999 stages 5 resident 1 cluster 1 splits 1", "mma 128x128 warps 2x4 bytes 64 splits 1"})
    EXPECT_FALSE(TileChoice::parse(text)) << '"' << text << '"';
}

TEST_F(Tiles, ChoicesFitTheDevice) {
  const ProductShape p = gemm(8192, 1280, 1280);
  const std::vector<TileChoice> here = tile_choices(p, kH200), there = tile_choices(p, kL4);
  EXPECT_TRUE(any_of_core(here, "wgmma"));
  EXPECT_TRUE(any_of_core(here, "mma"));
  EXPECT_FALSE(any_of_core(there, "wgmma")) << "sm_89 has no wgmma";
  EXPECT_TRUE(any_of_core(there, "mma"));
  DeviceFacts small = kH200;
  small.shared_bytes = 99 * 1024;
  const std::vector<TileChoice> little = tile_choices(p, small);
  EXPECT_TRUE(any_of_core(little, "wgmma"));
  EXPECT_LT(little.size(), here.size());
  for (const DeviceFacts& facts : {kH200, kL4, small})
    for (const TileChoice& c : tile_choices(p, facts)) {
      const int bytes = is_of(c, "mma") ? c.as<MmaTileShape>().shared_bytes() : c.as<WgmmaTileShape>().shared_bytes();
      EXPECT_LE(bytes, facts.shared_bytes) << c.text();
      // That many blocks fit on a multiprocessor at once.
      if (is_of(c, "wgmma")) {
        EXPECT_LE(bytes * c.as<WgmmaTileShape>().resident, kH200.shared_bytes) << c.text();
      }
    }
}

TEST_F(Tiles, LanesAreWholeRuns) {
  for (const int lanes : {1, 2, 4}) {
    const std::vector<TileChoice> choices = tile_choices(gemm(2048, 5120, 640, lanes), kH200);
    EXPECT_FALSE(choices.empty()) << lanes << " lanes";
    for (const TileChoice& c : choices) {
      if (is_of(c, "mma")) {
        EXPECT_EQ(c.as<MmaTileShape>().n / c.as<MmaTileShape>().warps_n % (8 * lanes), 0) << c.text();
        continue;
      }
      EXPECT_EQ(c.as<WgmmaTileShape>().n / lanes % 32, 0) << c.text();
      EXPECT_TRUE(lanes == 1 || c.as<WgmmaTileShape>().cluster == 1 || c.as<WgmmaTileShape>().cluster == lanes)
          << c.text();
    }
  }
  const ProductShape nine = gemm(2048, 5120, 640, 9);
  EXPECT_TRUE(tile_choices(nine, kH200).empty());
  try {
    choose_tile(nine, kH200);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr(nine.key));
  }
}

TEST_F(Tiles, ClustersNeedTwoTilesAlongM) {
  const auto clustered = [](const std::vector<TileChoice>& choices, int m) {
    return std::count_if(choices.begin(), choices.end(), [&](const TileChoice& c) {
      return is_of(c, "wgmma") && c.as<WgmmaTileShape>().cluster == 2 && c.as<WgmmaTileShape>().m == m;
    });
  };
  const std::vector<TileChoice> one = tile_choices(gemm(128, 1280, 1280), kH200),
                                two = tile_choices(gemm(256, 1280, 1280), kH200);
  EXPECT_GT(clustered(one, 64), 0);
  EXPECT_EQ(clustered(one, 128), 0);
  EXPECT_EQ(clustered(one, 256), 0);
  EXPECT_GT(clustered(two, 128), 0);
  EXPECT_EQ(clustered(two, 256), 0);
}

TEST_F(Tiles, PartsOfKFindMultiprocessorsWithoutWork) {
  const ProductShape deep = gemm(64, 1280, 5120), wide = gemm(65536, 1280, 5120), shallow = gemm(64, 1280, 64);
  const auto most = [](const std::vector<TileChoice>& choices) {
    int splits = 0;
    for (const TileChoice& c : choices) splits = std::max(splits, c.splits);
    return splits;
  };
  EXPECT_GT(most(tile_choices(deep, kH200)), 4);
  EXPECT_EQ(most(tile_choices(wide, kH200)), 1);
  EXPECT_EQ(most(tile_choices(shallow, kH200)), 1);
  for (const TileChoice& c : tile_choices(deep, kH200)) {
    if (!is_of(c, "wgmma") || c.splits == 1) continue;
    const int64_t tiles = deep.boxed_tiles_m(c.as<WgmmaTileShape>().m) * div_up(deep.n, c.as<WgmmaTileShape>().n);
    EXPECT_LE(4 * c.splits, deep.k * deep.element_bytes / 128) << c.text();
    EXPECT_LE(tiles * c.splits, 2 * kH200.multiprocessors * c.as<WgmmaTileShape>().resident) << c.text();
  }
}

// For products of few rows and a long K, if all blocks run at once.
TEST_F(Tiles, BlocksShareATileInsteadOfMeetingInMemory) {
  const auto best = [](int m) { return tile_choices(gemm(m, 896, 4864), kH200).front(); };
  EXPECT_EQ(best(17).text(), "wgmma 64x64 stages 8 resident 1 blocks along k 8");
  EXPECT_EQ(best(128).text(), "wgmma 64x64 stages 8 resident 1 blocks along k 4");
  EXPECT_EQ(best(256).as<WgmmaTileShape>().along_k, 1);
  for (const ProductShape& p : {gemm(64, 896, 4864), gemm(2048, 640, 5120), gemm(64, 896, 4864, 2)})
    for (const TileChoice& c : tile_choices(p, kH200)) {
      if (!is_of(c, "wgmma") || c.as<WgmmaTileShape>().along_k == 1) continue;
      EXPECT_EQ(c.splits, c.as<WgmmaTileShape>().along_k) << c.text();
      EXPECT_EQ(p.lanes, 1);
      EXPECT_LE(p.boxed_tiles_m(64) * div_up(p.n, 64) * c.splits, 120) << c.text();
    }
}

TEST_F(Tiles, TheBestEstimateIsFirstAndNoneComesTwice) {
  const std::vector<TileChoice> choices = tile_choices(gemm(512, 1280, 2560), kH200);
  EXPECT_TRUE(std::is_sorted(choices.begin(), choices.end(),
                             [](const TileChoice& a, const TileChoice& b) { return a.time < b.time; }));
  EXPECT_GT(choices.front().time, 0);
  EXPECT_EQ(texts(choices).size(), choices.size());
}

// Boxes of wgmma have one tap each, whose few channels leave most of a K tile empty.
TEST_F(Tiles, ConvolutionsOfFewChannelsDoNotRunInBoxes) {
  ProductShape p = gemm(512 * 512, 128, 9 * 8);
  EXPECT_TRUE(is_of(choose_tile(p, kH200), "wgmma"));
  p.kind = ProductKind::Conv2d;
  p.taps = 9;
  EXPECT_TRUE(is_of(choose_tile(p, kH200), "mma"));
  p.k = 9 * 64;
  EXPECT_TRUE(is_of(choose_tile(p, kH200), "wgmma"));
}

TEST_F(Tiles, TheVariableLeavesOneCore) {
  const ProductShape p = gemm(8192, 320, 320);
  setenv("TENON_CUDA_CORE", "mma", 1);
  EXPECT_FALSE(any_of_core(tile_choices(p, kH200), "wgmma"));
  EXPECT_TRUE(is_of(choose_tile(p, kH200), "mma"));
  setenv("TENON_CUDA_CORE", "wgmma", 1);
  EXPECT_FALSE(any_of_core(tile_choices(p, kH200), "mma"));
  EXPECT_TRUE(is_of(choose_tile(p, kH200), "wgmma"));
  EXPECT_TRUE(is_of(choose_tile(p, kL4), "mma")) << "what cannot run as asked runs on what there is";
  ProductShape no_boxes = p;
  no_boxes.boxed_tiles_m = {};
  EXPECT_TRUE(is_of(choose_tile(no_boxes, kH200), "mma"));
  setenv("TENON_CUDA_CORE", "cublas", 1);
  try {
    tile_choices(p, kH200);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Usage);
    EXPECT_THAT(e.what(), HasSubstr("or own, got \"cublas\""));
    for (const char* name : {"cublaslt, ", "cudnn, ", "mma, ", "simt, ", "skinny, ", "wgmma "})
      EXPECT_THAT(e.what(), HasSubstr(name));
  }
}

TEST_F(Tiles, AFewRowsTakeTheirOwnCore) {
  ProductShape p = gemm(1, 896, 4864);
  EXPECT_FALSE(is_of(choose_tile(p, kH200), "skinny"));
  p.few_rows = true;
  const TileChoice one = choose_tile(p, kH200);
  EXPECT_TRUE(is_of(one, "skinny"));
  EXPECT_EQ(one.text(), "skinny groups 1 warps 16");
  EXPECT_TRUE(TileChoice::parse(one.text())->same_as(one));
  EXPECT_FALSE(TileChoice::parse("skinny groups 1 warps"));
  p.m = 16;  // a row's sums do not depend on the other rows
  EXPECT_EQ(choose_tile(p, kH200).as<SkinnyTileShape>().warps, one.as<SkinnyTileShape>().warps);
  EXPECT_TRUE(is_of(choose_tile(p, kL4), "skinny"));
  // A layer's gate and up, whose 304 blocks all run at once, and the head, whose blocks process several tiles.
  ProductShape gate = gemm(1, 9728, 896), head = gemm(1, 151936, 896);
  gate.lanes = 2, gate.few_rows = head.few_rows = true;
  EXPECT_EQ(choose_tile(gate, kH200).text(), "skinny groups 2 warps 8");
  EXPECT_EQ(choose_tile(head, kH200).text(), "skinny groups 4 warps 8");
}

// Of rows computed before the product (as many as operands.h allows for four lanes), rows reduced alongside it, or
// neither.
TEST_F(Tiles, BlocksOfAFewRowsFitIntoSharedMemory) {
  for (const DeviceFacts& facts : {kH200, kL4})
    for (const int m : {1, 8, 9, 16, 17, 64})
      for (const int k : {72, 896, 1536, 4096})
        for (const int n : {512, 9728, 151936})
          for (const int lanes : {1, 2, 4})
            for (const bool factor : {false, true})
              for (const int64_t front : {0, 40 << 10}) {
                ProductShape p = gemm(m, n, k, lanes);
                p.few_rows = true;
                if (m <= SkinnyTileShape::kMaxRowsInFront) p.factor = factor, p.front = factor ? 0 : front;
                const std::vector<TileChoice> choices = tile_choices(p, facts);
                EXPECT_FALSE(choices.empty());
                for (const TileChoice& c : choices) {
                  if (!is_of(c, "skinny")) continue;
                  const SkinnyCall made(p, facts, c.as<SkinnyTileShape>());
                  EXPECT_LE(made.needs().shape.shared_bytes, facts.shared_bytes) << made.type();
                }
              }
}

// The fastest of a token's products where each was measured within the token (docs/notes/cuda-kernels.md).
TEST_F(Tiles, ATokensProductsTakeTheFastestTiles) {
  struct Measured {
    int rows, n, k, lanes;
    std::string_view fastest;
  };
  for (const Measured& m : {Measured{16, 1152, 896, 1, "skinny groups 2 warps 16"},
                            {16, 4096, 1024, 1, "skinny groups 4 warps 16"},
                            {16, 576, 1536, 1, "skinny groups 1 warps 16"},
                            {16, 896, 4864, 1, "skinny groups 1 warps 16"},
                            {16, 1024, 3072, 1, "skinny groups 1 warps 16"},
                            {16, 3072, 576, 2, "skinny groups 2 warps 16"},
                            {16, 6144, 1024, 2, "skinny groups 3 warps 16"},
                            {16, 9728, 896, 2, "skinny groups 3 warps 8"},
                            {12, 6144, 1024, 2, "skinny groups 3 warps 16"},
                            {8, 960, 576, 1, "skinny groups 2 warps 16"},
                            {8, 576, 576, 1, "skinny groups 2 warps 16"},
                            {8, 1024, 2048, 1, "skinny groups 2 warps 16"},
                            {4, 1152, 896, 1, "skinny groups 2 warps 16"},
                            {8, 1024, 3072, 1, "skinny groups 1 warps 16"},
                            {8, 9728, 896, 2, "skinny groups 2 warps 8"},
                            {8, 151936, 896, 1, "skinny groups 4 warps 8"}}) {
    ProductShape p = gemm(m.rows, m.n, m.k);
    p.lanes = m.lanes;
    p.few_rows = true;
    EXPECT_EQ(choose_tile(p, kH200).text(), m.fastest) << m.rows << " x " << m.n << " x " << m.k;
  }
}

// Up to 64 rows it competes: narrow weights are its own, wide ones and a long K, also in ranges, wgmma's.
TEST_F(Tiles, SomeMoreRowsTakeTheFasterCore) {
  for (const int rows : {17, 32, 64}) {
    ProductShape o = gemm(rows, 896, 896), gate = gemm(rows, 9728, 896), down = gemm(rows, 896, 4864);
    gate.lanes = 2;
    o.few_rows = gate.few_rows = down.few_rows = true;
    EXPECT_EQ(choose_tile(o, kH200).text(), "skinny groups 2 warps 16") << rows;
    EXPECT_TRUE(is_of(choose_tile(gate, kH200), "wgmma")) << rows;
    for (const bool in_ranges : {false, true}) {
      down.in_ranges = in_ranges;
      EXPECT_EQ(choose_tile(down, kH200).text(), "wgmma 64x64 stages 8 resident 1 blocks along k 8") << rows;
    }
    o.counts = true;  // which it cannot
    EXPECT_FALSE(is_of(choose_tile(o, kH200), "skinny")) << rows;
  }
}

TEST_F(Tiles, WhatComesWithTenonCanRunOnTheMachineItWasMeasuredOn) {
  EXPECT_EQ(measured_tiles("sm_89"), "");
  std::istringstream lines{std::string(measured_tiles("sm_90a"))};
  const TileTable table(measured_tiles("sm_90a"), root_ / "none.txt");
  std::set<std::string> keys;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t equals = line.find(" = "), comment = line.find("  # ");
    ASSERT_NE(equals, std::string::npos) << line;
    ASSERT_NE(comment, std::string::npos) << line;
    const std::string key = line.substr(0, equals), choice = line.substr(equals + 3, comment - equals - 3);
    EXPECT_TRUE(keys.insert(key).second) << "twice: " << key;
    if (choice == kOwnKernel || choice.starts_with("cudnn ")) {
      EXPECT_THAT(key, testing::MatchesRegex("(conv2d|attention) .* epilogue (plain|bias|pass)"));
      EXPECT_THAT(choice, testing::MatchesRegex("own|cudnn [0-9.]+ engine [0-9]+( knobs( [0-9]+:-?[0-9]+)+)?"));
      continue;
    }
    ProductShape p = product_named(key);
    ASSERT_GT(p.m * p.n * p.k, 0) << "no product: " << key;
    p.few_rows = choice.starts_with("skinny ");
    EXPECT_TRUE(TileChoice::parse(choice)) << line;
    if (choice.starts_with("cublaslt ")) {
      EXPECT_THAT(key, HasSubstr(" epilogue ")) << "of a library";
    } else {
      EXPECT_TRUE(texts(tile_choices(p, kH200)).contains(choice)) << line;
    }
    EXPECT_EQ(table.find(key), choice);
  }
  EXPECT_GE(keys.size(), 100u);
}

TEST_F(Tiles, WhatThisMachineMeasuredWins) {
  const fs::path file = root_ / "tiles" / "gpu.txt";
  write(file, "a = mine  # 1.00 us\n");
  const TileTable table("a = shipped  # 2 us\nb = shipped\n", file);
  EXPECT_EQ(table.find("a"), "mine");
  EXPECT_EQ(table.find("b"), "shipped");
  EXPECT_EQ(table.find("c"), std::nullopt);
  EXPECT_TRUE(table.measured_here("a"));
  EXPECT_FALSE(table.measured_here("b"));
}

TEST_F(Tiles, TheMeasuredChoiceIsTakenWhereTheDeviceCanRunIt) {
  const std::string key = "gemm 8192x320x320 batch 1 lanes 1 bytes 2";
  const ProductShape p = product_named(key);
  DeviceFacts facts = kH200;
  facts.name = "Shipped " + std::to_string(getpid());  // tables are cached by name for the whole process
  const TileTable shipped(measured_tiles("sm_90a"), root_ / "none.txt");
  ASSERT_TRUE(shipped.find(key));
  EXPECT_EQ(choose_tile(p, facts).text(), shipped.find(key));

  const std::string slow = tile_choices(p, facts).back().text();
  ASSERT_NE(slow, shipped.find(key));
  facts.name = "Mine/" + std::to_string(getpid());
  write(root_ / "tiles" / ("sm_90a-Mine-" + std::to_string(getpid()) + ".txt"), key + " = " + slow + "\n");
  EXPECT_EQ(choose_tile(p, facts).text(), slow);

  facts.name = "Impossible " + std::to_string(getpid());
  write(root_ / "tiles" / ("sm_90a-Impossible-" + std::to_string(getpid()) + ".txt"),
        key + " = wgmma 512x512 stages 9 resident 1 cluster 1 splits 1\n");
  EXPECT_EQ(choose_tile(p, facts).text(), tile_choices(p, facts).front().text());
}

}  // namespace
}  // namespace tenon::cuda
