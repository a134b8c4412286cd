#include "tenon/backend/cpu/tile/gemm.h"

#include <algorithm>

#include "tenon/backend/cpu/tile/gemm_schedule.h"
#include "tenon/backend/cpu/tile/product.h"
#include "tenon/core/error.h"

namespace tenon::cpu {
namespace {

// True if the kernel can read rows in place. It reads at least 16.
bool in_place(const TileOps& ops, const GemmArgs& args) {
  const PackedShape& b = args.b.shape;
  return ops.reads_rows && b.type == DType::BF16 && args.a.data && args.a.type == DType::BF16 &&
         b.k % term_elements(b.type) == 0 && args.m >= 16;
}

struct GemmWorkspace {
  int64_t* a_off;
  std::byte* packed;  // of all rows, or of a band or the single row per thread
  float *staging, *sums;
  int64_t packed_bytes, staging_each, sums_each, bytes;
  int64_t group_sums;  // in parts: floats of a column group's sums

  GemmWorkspace(const PackedShape& b, const GemmSchedule& s, int threads, int64_t rows_at_once, void* scratch) {
    ScratchCursor cursor(scratch);
    packed_bytes = round_up(s.packed_bytes(b), 64);
    staging_each = staging_floats(b.k, rows_at_once);
    group_sums = div_up(s.longest_band(), kMaxTileRows) * b.lanes * kTileFloats;
    sums_each = s.in_parts ? div_up(column_groups(b), s.tasks) * group_sums + made_floats(b) : sum_floats(b);
    a_off = cursor.take<int64_t>(b.terms());
    packed = cursor.take<std::byte>(packed_bytes * (s.in_parts || (s.together && !s.single_row) ? 1 : threads));
    staging = cursor.take<float>(staging_each * threads);
    sums = cursor.take<float>(sums_each * threads);
    bytes = cursor.used();
  }
};

class Gemm {
 public:
  Gemm(ThreadPool& pool, const TileOps& ops, const GemmArgs& args, void* scratch)
      : pool_(pool),
        ops_(ops),
        args_(args),
        shape_(args.b.shape),
        schedule_(shape_, args.m, args.batch, pool.threads(), ops.outruns_memory),
        work_(shape_, schedule_, pool.threads(), args.a.rows_at_once, scratch),
        in_place_(in_place(ops, args) && !schedule_.in_parts),
        a_stride_(in_place_ ? args.a.ld * size_of(args.a.type) : kLine),
        streams_(ops.one_stream && schedule_.single_row && shape_.bytes_of != DType::E4M3 && !shape_.on_the_fly &&
                 shape_.bytes() > l2_bytes() / 4) {
    for (int64_t t = 0; t < shape_.terms(); ++t) work_.a_off[t] = t * (in_place_ ? 1 : schedule_.plane) * kLine;
  }

  void run() {
    if (schedule_.in_parts) {
      for (int64_t i = 0; i < args_.batch * schedule_.bands; ++i)
        run_in_parts(i / schedule_.bands, i % schedule_.bands);
      return;
    }
    if (schedule_.together) {
      for (int64_t entry = 0; entry < args_.batch; ++entry) schedule_.single_row ? run_row(entry) : run_together(entry);
      return;
    }
    pool_.parallel_for(args_.batch * schedule_.bands, [&](int64_t task, int thread) {
      run_band(task / schedule_.bands, task % schedule_.bands, thread);
    });
  }

 private:
  void pack(int64_t entry, int64_t row0, int64_t rows, std::byte* dst, int thread) const {
    PackRowsArgs to{};
    to.rows = rows;
    to.k = shape_.k;
    to.dst = dst;
    to.dst_type = shape_.type;
    to.row_stride = kLine;
    to.term_stride = schedule_.plane * kLine;
    pack_source_rows(ops_, args_.a, entry * args_.m + row0, to, work_.staging + thread * work_.staging_each, thread);
  }

  // Tiles of 64 rows of [row0, row0 + rows); `packed` starts with their first line, unless they are read in place.
  template <class Use>
  void with_product(int64_t entry, int64_t row0, int64_t rows, const std::byte* packed, const Use& use) const {
    const auto* a =
        in_place_ ? static_cast<const std::byte*>(args_.a.data) + (entry * args_.m + row0) * a_stride_ : packed;
    // Beyond rows in place, nothing may be read: a last tile of less than 16 takes 16 more from the tile before.
    const int64_t last = rows / kMaxTileRows, rest = rows % kMaxTileRows;
    const int64_t taken = in_place_ && last > 0 && rest > 0 && rest < 16 ? 16 : 0;
    const auto first_row = [&](int64_t i) { return i > last ? rows : i * kMaxTileRows - (i == last ? taken : 0); };
    const auto tile = [&](int64_t i) {
      const int64_t at = first_row(i);
      return RowTile{at * a_stride_, entry * args_.m + row0 + at, static_cast<int>(first_row(i + 1) - at)};
    };
    const auto* b = static_cast<const std::byte*>(args_.b.data) + entry * args_.b_batch_stride;
    use(Product{ops_, shape_, b, a, work_.a_off, a_stride_, tile, args_.out, streams_, args_.panels});
  }

  void run_band(int64_t entry, int64_t band, int thread) const {
    const int64_t row0 = schedule_.first_row(band), rows = schedule_.first_row(band + 1) - row0;
    std::byte* packed = work_.packed + thread * work_.packed_bytes;
    const TileScope scope(ops_);
    if (!in_place_) pack(entry, row0, rows, packed, thread);
    with_product(entry, row0, rows, packed, [&](const Product& product) {
      for (int64_t group = 0; group < column_groups(shape_); ++group)
        product.run(group, 0, div_up(rows, kMaxTileRows), work_.sums + thread * work_.sums_each, thread);
    });
  }

  void run_row(int64_t entry) const {
    const int64_t panels = shape_.panels(), parts = std::min<int64_t>(pool_.threads(), panels);
    pool_.parallel_for(parts, [&](int64_t task, int thread) {
      std::byte* packed = work_.packed + thread * work_.packed_bytes;
      const TileScope scope(ops_);
      pack(entry, 0, 1, packed, thread);
      with_product(entry, 0, 1, packed, [&](const Product& product) {
        const int64_t end = (task + 1) * panels / parts;
        for (int64_t panel = task * panels / parts; panel < end; panel += kGroupPanels)
          product.run_panels(panel, std::min<int64_t>(kGroupPanels, end - panel), 0, 1,
                             work_.sums + thread * work_.sums_each, thread);
      });
    });
  }

  // All threads pack rows [row0, row0 + rows).
  void pack_together(int64_t entry, int64_t row0, int64_t rows) const {
    const int64_t share = std::clamp<int64_t>(div_up(rows, int64_t{4} * pool_.threads()), 1, staging_rows(shape_.k));
    const int64_t each = round_up(share, args_.a.rows_at_once);
    pool_.parallel_for(in_place_ ? 0 : div_up(rows, each), [&](int64_t task, int thread) {
      const int64_t at = task * each;
      pack(entry, row0 + at, std::min(each, rows - at), work_.packed + at * kLine, thread);
    });
  }

  void run_in_parts(int64_t entry, int64_t band) const {
    const int64_t row0 = schedule_.first_row(band), rows = schedule_.first_row(band + 1) - row0;
    const int64_t groups = column_groups(shape_), tasks = schedule_.tasks, terms = shape_.terms();
    pack_together(entry, row0, rows);
    with_product(entry, row0, rows, work_.packed, [&](const Product& product) {
      pool_.parallel_for(tasks, [&](int64_t task, int thread) {
        const TileScope scope(ops_);
        const int64_t first = task * groups / tasks, end = (task + 1) * groups / tasks;
        float* sums = work_.sums + thread * work_.sums_each;
        auto* made = reinterpret_cast<std::byte*>(sums + work_.sums_each - made_floats(shape_));
        for (int64_t term = 0; term < terms; term += schedule_.part_terms)
          for (int64_t group = first; group < end; ++group)
            product.run_part(group, div_up(rows, kMaxTileRows), term, std::min(terms, term + schedule_.part_terms),
                             sums + (group - first) * work_.group_sums, made, thread);
      });
    });
  }

  void run_together(int64_t entry) const {
    const int64_t m = args_.m, tiles = div_up(m, kMaxTileRows), groups = column_groups(shape_);
    pack_together(entry, 0, m);
    const int64_t parts = row_parts(groups, tiles, pool_.threads());
    with_product(entry, 0, m, work_.packed, [&](const Product& product) {
      pool_.parallel_for(groups * parts, [&](int64_t task, int thread) {
        const int64_t part = task % parts;
        const TileScope scope(ops_);
        product.run(task / parts, part * tiles / parts, (part + 1) * tiles / parts,
                    work_.sums + thread * work_.sums_each, thread);
      });
    });
  }

  ThreadPool& pool_;
  const TileOps& ops_;
  const GemmArgs& args_;
  const PackedShape& shape_;
  GemmSchedule schedule_;
  GemmWorkspace work_;
  bool in_place_;
  int64_t a_stride_;
  bool streams_;
};

}  // namespace

int64_t gemm_scratch_bytes(const TileOps& ops, const PackedShape& b, int64_t m, int64_t batch, int threads,
                           int64_t rows_at_once) {
  const GemmSchedule schedule(b, std::max<int64_t>(m, 1), batch, threads, ops.outruns_memory);
  return GemmWorkspace(b, schedule, threads, rows_at_once, nullptr).bytes;
}

void gemm(ThreadPool& pool, const TileOps& ops, const GemmArgs& args, void* scratch) {
  const PackedShape& shape = args.b.shape;
  TENON_CHECK(Internal, shape.lanes >= 1 && shape.lanes <= kMaxLanes && shape.taps == 1, "gemm")
      << "expected 1 to " << kMaxLanes << " lanes and one tap, got " << shape.lanes << " and " << shape.taps;
  TENON_CHECK(Internal, shape.k > 0, "gemm") << "expected K > 0";
  TENON_CHECK(Internal, !shape.on_the_fly || args.batch == 1, "gemm") << "a batch is packed on the fly";
  if (args.m <= 0 || args.batch <= 0 || shape.cols <= 0) return;
  Gemm(pool, ops, args, scratch).run();
}

}  // namespace tenon::cpu
