#include "tenon/backend/cpu/tile/winograd.h"

#include <algorithm>
#include <cstring>

#include "tenon/backend/cpu/tile/product.h"
#include "tenon/core/error.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kTilesWide = kMaxTileRows / 4;  // per block: an epilogue tile is a run of its pixels
constexpr int64_t kTiles = 64;                    // per block: rows of the 36 products

// The image split into blocks of tiles: `rows` x `cols` tiles of 4 x 4 outputs.
struct WinogradPlan {
  ConvShape s;
  int64_t tiles_y, tiles_x, rows, cols, row_blocks, col_blocks;
  int64_t terms, plane;  // plane: lines of one term of one point
  bool together;         // few blocks: transform all of them, then split the columns among threads

  WinogradPlan(const ConvShape& shape, int threads) : s(shape) {
    tiles_y = div_up(s.out_h(), 4);
    tiles_x = div_up(s.out_w(), 4);
    col_blocks = div_up(tiles_x, kTilesWide);
    cols = div_up(tiles_x, col_blocks);
    row_blocks = div_up(tiles_y, std::max<int64_t>(1, kTiles / cols));
    rows = div_up(tiles_y, row_blocks);
    row_blocks = div_up(tiles_y, rows);
    terms = div_up(s.c, 16);
    plane = rows * cols | 1;  // odd, so that terms spread over the cache sets
    together = blocks() < int64_t{2} * threads && blocks() % threads != 0;
  }
  int64_t blocks() const { return s.n * row_blocks * col_blocks; }
  int64_t point_bytes() const { return terms * plane * kLine; }
  int64_t block_bytes() const { return kWinogradPoints * point_bytes() + 16 * kLine; }
  int64_t channel_ld() const { return terms * 16; }
  int64_t staging_row() const { return (4 * cols + 2) * channel_ld(); }
  static int64_t sums_point() { return kTiles * kMaxTileCols + 16; }
  static int64_t out_row() { return int64_t{kMaxTileRows} * kMaxTileCols; }
  int64_t groups() const { return div_up(div_up(s.o, kPanel), kGroupPanels); }
};

struct WinogradWorkspace {
  int64_t* a_off;
  std::byte* points;  // transformed input: of all blocks, or of one block per thread
  float *staging, *sums, *out;
  int64_t block_each, staging_each, sums_each, out_each, bytes;

  WinogradWorkspace(const WinogradPlan& plan, int threads, void* scratch) {
    ScratchCursor cursor(scratch);
    block_each = round_up(plan.block_bytes(), 64);
    staging_each = 6 * plan.staging_row();
    sums_each = kWinogradPoints * WinogradPlan::sums_point();
    out_each = 4 * WinogradPlan::out_row();
    a_off = cursor.take<int64_t>(plan.terms);
    points = cursor.take<std::byte>(block_each * (plan.together ? plan.blocks() : threads));
    staging = cursor.take<float>(staging_each * threads);
    sums = cursor.take<float>(sums_each * threads);
    out = cursor.take<float>(out_each * threads);
    bytes = cursor.used();
  }
};

// Tiles [y0, y1) x [x0, x1) of image n.
struct Block {
  int64_t n, y0, y1, x0, x1;
  int64_t cols() const { return x1 - x0; }
  int tiles() const { return static_cast<int>((y1 - y0) * cols()); }
};

class Winograd {
 public:
  Winograd(ThreadPool& pool, const TileOps& ops, const WinogradArgs& args, void* scratch)
      : pool_(pool),
        ops_(ops),
        args_(args),
        s_(args.shape),
        plan_(args.shape, pool.threads()),
        work_(plan_, pool.threads(), scratch) {
    for (int64_t t = 0; t < plan_.terms; ++t) work_.a_off[t] = t * plan_.plane * kLine;
  }

  void run() const {
    const int64_t blocks = plan_.blocks(), groups = plan_.groups();
    if (plan_.together) {
      pool_.parallel_for(
          blocks, [&](int64_t i, int thread) { transform(block(i), work_.points + i * work_.block_each, thread); });
      pool_.parallel_for(groups * blocks, [&](int64_t task, int thread) {
        const int64_t i = task % blocks;
        multiply(block(i), work_.points + i * work_.block_each, task / blocks, thread);
      });
      return;
    }
    pool_.parallel_for(blocks, [&](int64_t i, int thread) {
      std::byte* points = work_.points + thread * work_.block_each;
      transform(block(i), points, thread);
      for (int64_t group = 0; group < groups; ++group) multiply(block(i), points, group, thread);
    });
  }

 private:
  Block block(int64_t i) const {
    const int64_t x0 = i % plan_.col_blocks * plan_.cols, y0 = i / plan_.col_blocks % plan_.row_blocks * plan_.rows;
    return {i / plan_.col_blocks / plan_.row_blocks, y0, std::min(plan_.tiles_y, y0 + plan_.rows), x0,
            std::min(plan_.tiles_x, x0 + plan_.cols)};
  }

  // Passes the block's pixels through prologue and input transform. Consecutive rows of tiles share two rows of pixels.
  void transform(const Block& b, std::byte* points, int thread) const {
    float* staging = work_.staging + thread * work_.staging_each;
    const int64_t top = 4 * b.y0 - s_.pad_t, row_floats = plan_.staging_row();
    int64_t ready = top;
    for (int64_t y = b.y0; y < b.y1; ++y) {
      WinogradInputArgs in{};
      for (; ready < 4 * y - s_.pad_t + 6; ++ready)
        stage_row(b, ready, staging + (ready - top) % 6 * row_floats, thread);
      for (int i = 0; i < 6; ++i) in.rows[i] = staging + (4 * (y - b.y0) + i) % 6 * row_floats;
      in.ld = plan_.channel_ld();
      in.terms = plan_.terms;
      in.tiles = static_cast<int>(b.cols());
      in.dst = points + (y - b.y0) * b.cols() * kLine;
      in.point_stride = plan_.point_bytes();
      in.term_stride = plan_.plane * kLine;
      ops_.winograd_input(in);
    }
  }

  // One input row of the block with its padding; channels are zero-padded.
  void stage_row(const Block& b, int64_t y, float* row, int thread) const {
    const int64_t ld = plan_.channel_ld(), width = 4 * b.cols() + 2, left = 4 * b.x0 - s_.pad_l;
    const int64_t begin = std::clamp<int64_t>(left, 0, s_.w), end = std::clamp<int64_t>(left + width, begin, s_.w);
    if (y < 0 || y >= s_.h || begin == end) return void(std::fill_n(row, width * ld, 0.0f));
    std::fill(row, row + (begin - left) * ld, 0.0f);
    std::fill(row + (end - left) * ld, row + width * ld, 0.0f);
    float* first = row + (begin - left) * ld;
    if (args_.x.data) {
      const auto* src = static_cast<const std::byte*>(args_.x.data) +
                        ((b.n * s_.h + y) * s_.w + begin) * args_.x.ld * size_of(args_.x.type);
      for (int64_t x = 0; x < end - begin; ++x)
        ops_.widen(src + x * args_.x.ld * size_of(args_.x.type), args_.x.type, first + x * ld, s_.c);
    } else {
      args_.x.pixels(b.n, y, begin, end, first, ld, thread);
    }
    for (int64_t x = 0; s_.c < ld && x < end - begin; ++x) std::fill(first + x * ld + s_.c, first + (x + 1) * ld, 0.0f);
  }

  // Column group `group` of the block: 36 products, output transform, epilogue.
  void multiply(const Block& b, const std::byte* points, int64_t group, int thread) const {
    const bool half = args_.w_type == DType::F16;
    const int64_t panels = div_up(s_.o, kPanel), panel0 = group * kGroupPanels, block = half ? kBlock / 2 : kBlock;
    float* sums = work_.sums + thread * work_.sums_each;
    TileArgs t{};
    t.a_off = work_.a_off;
    t.a_stride = kLine;
    t.b_stride = kWinogradPoints * plan_.terms * block;
    t.ldc = kMaxTileCols;
    t.terms = plan_.terms;
    t.m = b.tiles();
    t.panels = static_cast<int>(std::min<int64_t>(kGroupPanels, panels - panel0));
    for (int64_t xi = 0; xi < kWinogradPoints; ++xi) {
      t.a = points + xi * plan_.point_bytes();
      t.b = static_cast<const std::byte*>(args_.w) + kWinogradHeader +
            (panel0 * kWinogradPoints + xi) * plan_.terms * block;
      t.c = sums + xi * WinogradPlan::sums_point();
      half ? ops_.gemm_f32_f16(t) : ops_.gemm_f32(t);
    }
    for (int64_t y = b.y0; y < b.y1; ++y) deliver(b, y, panel0, t.panels, sums, thread);
  }

  // One row of tiles: four runs of pixels.
  void deliver(const Block& b, int64_t y, int64_t panel0, int panels, const float* sums, int thread) const {
    float* out = work_.out + thread * work_.out_each;
    float undo;
    std::memcpy(&undo, args_.w, sizeof(undo));
    ops_.winograd_output({sums + (y - b.y0) * b.cols() * kMaxTileCols, WinogradPlan::sums_point(), kMaxTileCols,
                          static_cast<int>(b.cols()), panels * kPanel, out, WinogradPlan::out_row(), undo});
    OutTile tile{};
    tile.col0 = panel0 * kPanel;
    tile.rows = static_cast<int>(std::min(4 * b.cols(), s_.out_w() - 4 * b.x0));
    tile.cols = static_cast<int>(std::min<int64_t>(panels * kPanel, s_.o - tile.col0));
    tile.ld = kMaxTileCols;
    tile.thread = thread;
    for (int64_t i = 0; i < std::min<int64_t>(4, s_.out_h() - 4 * y); ++i) {
      tile.row0 = (b.n * s_.out_h() + 4 * y + i) * s_.out_w() + 4 * b.x0;
      tile.acc[0] = out + i * WinogradPlan::out_row();
      args_.out(tile);
    }
  }

  ThreadPool& pool_;
  const TileOps& ops_;
  const WinogradArgs& args_;
  const ConvShape& s_;
  WinogradPlan plan_;
  WinogradWorkspace work_;
};

}  // namespace

bool winograd_legal(const ConvShape& s) {
  return s.kh == 3 && s.kw == 3 && s.stride == 1 && s.n > 0 && s.c > 0 && s.o > 0 && s.out_h() > 0 && s.out_w() > 0;
}

int64_t winograd_scratch_bytes(const ConvShape& shape, int threads) {
  return WinogradWorkspace(WinogradPlan(shape, threads), threads, nullptr).bytes;
}

void winograd2d(ThreadPool& pool, const TileOps& ops, const WinogradArgs& args, void* scratch) {
  TENON_CHECK(Internal, winograd_legal(args.shape), "winograd") << "expected a 3x3 convolution with stride 1";
  TENON_CHECK(Internal, args.w_type == DType::F32 || args.w_type == DType::F16, "winograd")
      << "expected weights in f32 or f16, got " << name_of(args.w_type);
  Winograd(pool, ops, args, scratch).run();
}

}  // namespace tenon::cpu
