// Tiles of a matrix product on sm_90's tensor cores, one block a multiprocessor that works through a list of items:
//
//   warpgroup 0, one thread: boxes of both operands --TMA, kStages deep--> shared [rows][128 bytes], swizzled
//   the other warpgroups, 64 rows of the tile each: shared --wgmma--> registers --slabs of 16 rows--> the epilogue
//
// Two barriers a stage: `full` counts the bytes that came, `empty` the warps that are done with them. The copies of the
// next item run ahead while the epilogue of this one does its work.
#pragma once
#include "tenon/device/mma_results.h"

namespace tenon::device {

/// kM_ (64, 128 or 256) x kN_ (a multiple of 32 up to 256) results, 128 bytes of K a stage. kResident_: blocks that share
/// a multiprocessor.
template <int kM_, int kN_, int kStages_, int kResident_ = 1>
struct WgmmaTile {
  static constexpr int kM = kM_, kN = kN_, kStages = kStages_, kResident = kResident_, kRowBytes = 128;
  /// Warpgroups that multiply: 64 rows each, or twice 64.
  static constexpr int kGroups = kM > 128 ? 2 : kM / 64, kParts = kM / 64 / kGroups;
  static constexpr int kWarpM = 16 * kParts, kWarpN = kN, kFragmentStep = 64;
  static constexpr int kSumThreads = 128 * kGroups, kSumWarps = kSumThreads / 32, kThreads = kSumThreads + 128;
  static constexpr int kSlabColumns = kN % 64 == 0 && kN < 256 ? 64 : 32;
  static constexpr int kSlabBytes = 16 * (kSlabColumns + 8) * 4;
  static constexpr int kStageBytes = (kM + kN) * kRowBytes;
  static constexpr int kSlabsAt = kStages * kStageBytes, kBarriersAt = kSlabsAt + kSumWarps * kSlabBytes;
  static constexpr int kSharedBytes = kBarriersAt + 16 * kStages + 16;
  static_assert(kM % 64 == 0 && kN % 32 == 0 && kN <= 256 && kParts * kN <= 256);
};

DEV void wgmma(BF16, auto& d, uint64_t a, uint64_t b) { wgmma_bf16(d, a, b, true); }
DEV void wgmma(F16, auto& d, uint64_t a, uint64_t b) { wgmma_f16(d, a, b, true); }
DEV void wgmma(E4M3, auto& d, uint64_t a, uint64_t b) { wgmma_e4m3(d, a, b, true); }

/// Where columns of an operand come from: an operand's `source(p, column)`. Joined operands have several maps.
struct TmaSource {
  const TensorMap& map;
  int column;
};

/// One piece of work: a tile and a range of K, of those cut into `parts`.
struct WgmmaItem {
  int tile, part, parts, m, n;  ///< m, n: the tile's place, in tiles
  /// Number `index` of tiles_m x tiles_n x splits items of each batch; the parts of a tile are neighbours.
  DEV WgmmaItem(int index, int tiles_m, int tiles_n, int splits)
      : tile(index / splits), part(index - tile * splits), parts(splits) {
    const TileAt at(tile % (tiles_m * tiles_n), tiles_m, tiles_n);
    m = at.m, n = at.n;
  }
};

/// The barriers of one stage after the other.
template <class Tile>
struct StageRing {
  uint32_t shared = shared_address(shared_memory());
  int stage = 0, phase = 0;
  DEV uint32_t a() const { return shared + stage * Tile::kStageBytes; }
  DEV uint32_t b() const { return a() + Tile::kM * Tile::kRowBytes; }
  DEV uint32_t full() const { return shared + Tile::kBarriersAt + 16 * stage; }
  DEV uint32_t empty() const { return full() + 8; }
  DEV void advance() {
    if (++stage == Tile::kStages) stage = 0, phase ^= 1;
  }
};

template <class Tile>
struct SumCrew {
  DEV static int index() { return thread_index() - 128; }
  DEV static void sync() { sync_named(1, Tile::kSumThreads); }
};

/// Copies the operands of all this block's items. What does not depend on the kernels before this one, the constant
/// operand of the first stages, is copied while they still run.
template <class Tile, class Problem>
DEV void wgmma_produce(const Problem& problem) {
  StageRing<Tile> ring;
  int ahead = 0;  // stages whose constant operand is under way
  if (Problem::kConstantB && static_cast<int>(block_x()) < problem.items()) {
    const auto item = problem.item(block_x());
    const StepRange steps = problem.steps(item);
    NO_UNROLL for (; ahead < Tile::kStages && ahead < steps.count; ++ahead) {
      mbarrier_arrive_expecting(ring.full(), problem.stage_bytes());
      problem.load_b(item, steps.first + ahead, ring.b(), ring.full());
      ring.advance();
    }
    ring = {};
  }
  griddep_wait();
  for (int index = block_x(); index < problem.items(); index += grid_x()) {
    const auto item = problem.item(index);
    const StepRange steps = problem.steps(item);
    NO_UNROLL for (int step = 0; step < steps.count; ++step) {
      if (ahead > 0) {
        --ahead;
      } else {
        mbarrier_wait(ring.empty(), ring.phase ^ 1);
        mbarrier_arrive_expecting(ring.full(), problem.stage_bytes());
        problem.load_b(item, steps.first + step, ring.b(), ring.full());
      }
      problem.load_a(item, steps.first + step, ring.a(), ring.full());
      ring.advance();
    }
  }
}

/// The sums of `steps` stages.
template <class Tile, class T>
DEV void wgmma_loop(MmaSums<Tile>& sums, StageRing<Tile>& ring, int steps) {
  constexpr int kParts = Tile::kParts;
  const uint32_t rows = (warp_uniform() - 4) / 4 * (64 * kParts) * Tile::kRowBytes;
  uint32_t last_empty = 0;
  sums = {};
  NO_UNROLL for (int step = 0; step < steps; ++step) {
    mbarrier_wait(ring.full(), ring.phase);
    const uint64_t b = wgmma_rows(ring.b());
    wgmma_fence();
    UNROLL for (int part = 0; part < kParts; ++part) {
      const uint64_t a = wgmma_rows(ring.a() + rows + part * 64 * Tile::kRowBytes);
      UNROLL for (int k = 0; k < Tile::kRowBytes / 32; ++k) wgmma(T{}, sums.v[part], a + 2 * k, b + 2 * k);
    }
    wgmma_commit();
    wgmma_wait<1>();  // the step before this one is done with its stage
    if (step > 0 && lane() == 0) mbarrier_arrive(last_empty);
    last_empty = ring.empty();
    ring.advance();
  }
  wgmma_wait<0>();
  UNROLL for (int part = 0; part < kParts; ++part) wgmma_settle(sums.v[part]);
  if (steps > 0 && lane() == 0) mbarrier_arrive(last_empty);
}

/// Multiplies and runs the epilogue of all this block's items.
template <class Tile, class T, class Epilogue, class Params, class Problem>
DEV void wgmma_consume(const Params& p, const Problem& problem) {
  StageRing<Tile> ring;
  MmaSums<Tile> sums;
  const int w = warp() - 4;
  unsigned char* shared = shared_memory();
  const WarpPlace place{w / 4 * (64 * Tile::kParts) + w % 4 * 16, 0,
                        reinterpret_cast<float*>(shared + Tile::kSlabsAt + w * Tile::kSlabBytes)};
  uint32_t* came = reinterpret_cast<uint32_t*>(shared + Tile::kBarriersAt + 16 * Tile::kStages);
  for (int index = block_x(); index < problem.items(); index += grid_x()) {
    const auto item = problem.item(index);
    wgmma_loop<Tile, T>(sums, ring, problem.steps(item).count);
    if (item.parts > 1 && !mma_meet<Tile, SumCrew<Tile>>(p.sizes.split, item.tile, item.part, sums, came)) continue;
    mma_store<Tile, Epilogue>(
        p, sums, place, [&](int i) { return problem.row_of(item, i); }, problem.column(item), problem.columns());
  }
}

/// The whole kernel. A Problem says which items there are, what to copy for a step of one, how many
/// bytes that is, what its rows are, and whether B is there before the kernels before this one have ended.
template <class Tile, class T, class Epilogue, class Params, class Problem>
DEV void wgmma_run(const Params& p, const Problem& problem) {
  StageRing<Tile> ring;
  if (thread_index() == 0) {
    for (; ring.phase == 0; ring.advance()) {
      mbarrier_init(ring.full(), 1);
      mbarrier_init(ring.empty(), Tile::kSumWarps);
    }
    mbarrier_init_fence();
  }
  sync_block();
  griddep_launch();  // the next kernel's blocks wait for this one's end themselves
  // 384 threads have 168 registers each: those who copy need few.
  constexpr bool kMovesRegisters = Tile::kThreads > 256 && Tile::kResident == 1;
  if (warp_uniform() < 4) {
    if constexpr (kMovesRegisters) registers_decrease<40>();
    if (thread_index() == 0) wgmma_produce<Tile>(problem);
  } else {
    if constexpr (kMovesRegisters) registers_increase<232>();
    griddep_wait();
    wgmma_consume<Tile, T, Epilogue>(p, problem);
  }
}

}  // namespace tenon::device
