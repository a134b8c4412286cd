#include "tenon/backend/cpu/tile/conv.h"

#include <algorithm>

#include "tenon/backend/cpu/tile/conv_pack.h"
#include "tenon/backend/cpu/tile/product.h"
#include "tenon/core/error.h"

namespace tenon::cpu {
namespace {

struct ConvWorkspace {
  int64_t* a_off;
  std::byte* packed;  // of all images, or of one block per thread
  float *staging, *sums;
  int64_t packed_each, staging_each, sums_each, bytes;

  ConvWorkspace(const ConvPlan& plan, int threads, void* scratch) {
    ScratchCursor cursor(scratch);
    packed_each = plan.packed_bytes();
    staging_each = ConvPacker::staging_floats(plan);
    sums_each = sum_floats(plan.w);
    a_off = cursor.take<int64_t>(plan.w.terms());
    packed = cursor.take<std::byte>(packed_each * (plan.together ? plan.s.n : threads));
    staging = cursor.take<float>(staging_each * threads);
    sums = cursor.take<float>(sums_each * threads);
    bytes = cursor.used();
  }
};

class Conv {
 public:
  Conv(ThreadPool& pool, const TileOps& ops, const ConvArgs& args, void* scratch)
      : pool_(pool),
        ops_(ops),
        args_(args),
        plan_(args.shape, args.w.shape.type, pool.threads()),
        work_(plan_, pool.threads(), scratch) {
    plan_.fill_offsets(work_.a_off);
  }

  void run() const { plan_.together ? run_together() : run_blocks(); }

 private:
  ConvBlock block(int64_t index) const {
    const int64_t col = index % plan_.col_blocks, row = index / plan_.col_blocks % plan_.row_blocks;
    const int64_t y0 = row * plan_.rows, x0 = col * plan_.cols;
    return {index / plan_.col_blocks / plan_.row_blocks, y0, std::min(plan_.s.out_h(), y0 + plan_.rows), x0,
            std::min(plan_.s.out_w(), x0 + plan_.cols)};
  }
  ConvPacker packer(const ConvBlock& b, std::byte* packed, int thread) const {
    return {ops_, plan_, args_.x, b, packed, work_.staging + thread * work_.staging_each, thread};
  }
  float* sums(int thread) const { return work_.sums + thread * work_.sums_each; }

  // Pixels of a packed row (Rows) or of the whole block (otherwise: pixels continue from row to row).
  int64_t run_pixels(const ConvBlock& b) const {
    return plan_.layout == ConvLayout::Rows ? b.x1 - b.x0 : (b.y1 - b.y0) * plan_.s.out_w();
  }
  int64_t tile_count(const ConvBlock& b) const {
    return div_up(run_pixels(b), kMaxTileRows) * (plan_.layout == ConvLayout::Rows ? b.y1 - b.y0 : 1);
  }
  RowTile tile(const ConvBlock& b, int64_t i) const {
    const ConvShape& s = plan_.s;
    const int64_t pixels = run_pixels(b), per_run = div_up(pixels, kMaxTileRows);
    const int64_t run = i / per_run, at = i % per_run * kMaxTileRows;
    const int rows = static_cast<int>(std::min<int64_t>(kMaxTileRows, pixels - at));
    const int64_t first = (b.n * s.out_h() + b.y0) * s.out_w();
    if (plan_.layout != ConvLayout::Rows) return {at * kLine, first + at, rows};
    return {(run * plan_.pitch + at) * s.stride * kLine, first + run * s.out_w() + b.x0 + at, rows};
  }

  void run_blocks() const {
    pool_.parallel_for(plan_.blocks(), [&](int64_t task, int thread) {
      const ConvBlock b = block(task);
      std::byte* packed = work_.packed + thread * work_.packed_each;
      const TileScope scope(ops_);
      const ConvPacker pack = packer(b, packed, thread);
      for (int64_t row = 0; row < pack.row_count(); ++row) pack.pack_row(row);
      const auto tiles = [&](int64_t i) { return tile(b, i); };
      const Product product{ops_, plan_.w, args_.w.data, packed, work_.a_off, plan_.a_stride(), tiles, args_.out};
      for (int64_t group = 0; group < column_groups(plan_.w); ++group)
        product.run(group, 0, tile_count(b), sums(thread), thread);
    });
  }

  void run_together() const {
    const int64_t images = plan_.s.n, rows = packer(block(0), nullptr, 0).row_count();
    pool_.parallel_for(images * rows, [&](int64_t task, int thread) {
      const int64_t n = task / rows;
      packer(block(n), work_.packed + n * work_.packed_each, thread).pack_row(task % rows);
    });
    const int64_t each = tile_count(block(0)), count = images * each, groups = column_groups(plan_.w);
    const int64_t parts = row_parts(groups, count, pool_.threads());
    const auto tiles = [&](int64_t i) {
      RowTile t = tile(block(i / each), i % each);
      t.a_offset += i / each * work_.packed_each;
      return t;
    };
    const Product product{ops_, plan_.w, args_.w.data, work_.packed, work_.a_off, plan_.a_stride(), tiles, args_.out};
    pool_.parallel_for(groups * parts, [&](int64_t task, int thread) {
      const int64_t part = task % parts;
      const TileScope scope(ops_);
      product.run(task / parts, part * count / parts, (part + 1) * count / parts, sums(thread), thread);
    });
  }

  ThreadPool& pool_;
  const TileOps& ops_;
  const ConvArgs& args_;
  ConvPlan plan_;
  ConvWorkspace work_;
};

}  // namespace

int64_t conv_scratch_bytes(const ConvShape& shape, DType type, int threads) {
  return ConvWorkspace(ConvPlan(shape, type, threads), threads, nullptr).bytes;
}

void conv2d(ThreadPool& pool, const TileOps& ops, const ConvArgs& args, void* scratch) {
  const ConvShape& s = args.shape;
  const PackedShape expected = conv_shape(args.w.shape.type, s.filters()), &w = args.w.shape;
  TENON_CHECK(Internal, w.cols == expected.cols && w.k == expected.k && w.taps == expected.taps && w.lanes == 1,
              "conv2d")
      << "the packed weight does not match the shape's channels and taps";
  Conv(pool, ops, args, scratch).run();
}

}  // namespace tenon::cpu
