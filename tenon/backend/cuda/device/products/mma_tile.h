// A block's tile of a matrix product on tensor cores, or in f32 on the CUDA cores, y[m, n] = sum over k of a[m, k] b[n,
// k]:
//
//   global --cp.async, kStages deep--> shared [rows][kRowBytes], swizzled --ldmatrix, a K block ahead--> mma
//   --> registers
//   registers, of a permuted B or through slabs of 16 rows per warp --> the epilogue
//
// Shared memory holds a row's 16-byte chunks XOR-swizzled by the row number, so that neither cp.async nor ldmatrix has
// bank conflicts. Rows beyond the matrix repeat the last one, and their results are not stored; columns beyond K are
// zero.
#pragma once
#include "tenon/backend/cuda/device/products/mma_results.h"

namespace tenon::device {

/// kM_ x kN_ results per block, kWarpsM_ x kWarpsN_ warps, kRowBytes_ (64 or 128) bytes of K per stage.
template <int kM_, int kN_, int kWarpsM_, int kWarpsN_, int kRowBytes_, int kStages_>
struct MmaTile {
  static constexpr int kM = kM_, kN = kN_, kWarpsM = kWarpsM_, kWarpsN = kWarpsN_;
  static constexpr int kRowBytes = kRowBytes_, kStages = kStages_;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN, kSumThreads = kThreads;
  static constexpr int kWarpM = kM / kWarpsM, kWarpN = kN / kWarpsN;  ///< a warp's part
  static constexpr int kStageBytes = (kM + kN) * kRowBytes;
  static constexpr bool kPermutesB = true;
  /// Runs of results whose loads are in flight together in the epilogue: as many as registers allow.
  static constexpr int kMaxCalls = kThreads > 128 && kWarpN <= 256 ? 8 : 4;
  static constexpr int kSlabColumns = kWarpN;  ///< of a slab of results
  static constexpr int kSlabBytes = 16 * (kSlabColumns + 8) * 4;
  static constexpr int kPipelineBytes = kStages * kStageBytes, kSlabsBytes = kWarpsM * kWarpsN * kSlabBytes;
  static constexpr int kSharedBytes = kPipelineBytes > kSlabsBytes ? kPipelineBytes : kSlabsBytes;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0, "fragments of a warp are 16 x 16");
  static_assert(kRowBytes == 64 || kRowBytes == 128, "the swizzles there are");
  static_assert(kStages >= 2);

  /// The XOR mask for a row's chunk numbers.
  DEV static int swizzle(int row) { return kRowBytes == 128 ? row & 7 : (row >> 1) & 3; }
};

DEV void mma(BF16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_bf16(d, a, b); }
DEV void mma(F16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_f16(d, a, b); }
/// The tensor core sums products of e4m3 in some 14 bits, so only 32 are summed there; these sums are added in f32.
DEV void mma(E4M3, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  float apart[4] = {};
  mma_e4m3(apart, a, b);
  UNROLL for (int i = 0; i < 4; ++i) d[i] += apart[i];
}

/// The rows and the chunk that a thread copies: chunk `chunk` of rows first, first + kStride, ...
template <class Tile, int kRows, class T>
struct CopyPart {
  static constexpr int kChunks = Tile::kRowBytes / 16, kPerChunk = 16 / sizeof(T);
  static constexpr int kStride = Tile::kThreads / kChunks;
  static constexpr int kPasses = (kRows + kStride - 1) / kStride;
  static constexpr bool kEven = kRows % kStride == 0;           ///< every thread has a row in every pass
  static constexpr int kColumns = Tile::kRowBytes / sizeof(T);  ///< per K tile
  static_assert(kStride % 8 == 0, "a thread's rows share their swizzle");

  DEV static int first() { return thread_index() / kChunks; }
  DEV static int column() { return thread_index() % kChunks * kPerChunk; }
  DEV static uint32_t offset() {
    return first() * Tile::kRowBytes + (thread_index() % kChunks ^ Tile::swizzle(first())) * 16;
  }
  DEV static bool has(int pass) { return kEven || first() + pass * kStride < kRows; }
};

/// Copies kRows rows of an operand to shared memory, one K tile at a time.
template <class Tile, int kRows, class Operand>
struct RowLoader {
  using T = typename Operand::T;
  using Part = CopyPart<Tile, kRows, T>;
  static constexpr int kBytes = Operand::kWidth * sizeof(T) < 16 ? Operand::kWidth * sizeof(T) : 16;
  typename Operand::Row rows[Part::kPasses];
  int column, columns;

  /// row_of(i) is the operand's row for row i of the tile. Starts at K tile `k_tile`.
  template <class Params, class RowOf>
  DEV RowLoader(const Params& p, int k, int k_tile, RowOf row_of)
      : column(k_tile * Part::kColumns + Part::column()), columns(k) {
    UNROLL for (int i = 0; i < Part::kPasses; ++i) rows[i] =
        Operand::row(p, row_of(Part::has(i) ? Part::first() + i * Part::kStride : kRows - 1));
  }

  template <class Params>
  DEV void copy(const Params&, uint32_t shared) {
    const uint32_t to = shared + Part::offset();
    UNROLL for (int i = 0; i < Part::kPasses; ++i) {
      if (!Part::has(i)) continue;
      if constexpr (kBytes == 16) {
        const bool present = column < columns;
        cp_async16(to + i * Part::kStride * Tile::kRowBytes, Operand::at(rows[i], present ? column : 0),
                   present ? 16 : 0);
      } else {
        copy_vectors(rows[i], to + i * Part::kStride * Tile::kRowBytes);
      }
    }
    column += Part::kColumns;
  }

  // A chunk of several vectors, each bounds-checked against K.
  DEV void copy_vectors(const typename Operand::Row& row, uint32_t to) const {
    UNROLL for (int c = 0; c < Part::kPerChunk; c += Operand::kWidth) {
      const bool present = column + c < columns;
      const T* from = Operand::at(row, present ? column + c : 0);
      if constexpr (kBytes == 8)
        cp_async8(to + c * sizeof(T), from, present ? 8 : 0);
      else
        cp_async4(to + c * sizeof(T), from, present ? 4 : 0);
    }
  }
};

/// The fragments of one K block: 32 bytes of K.
template <class Tile>
struct MmaFragments {
  uint32_t a[Tile::kWarpM / 16][4];
  uint32_t b[Tile::kWarpN / 8][2];

  /// `a_from`, `b_from`: this lane's addresses of the first fragment in the stage's first K block.
  DEV void load(uint32_t a_from, uint32_t b_from, int k_block) {
    UNROLL for (int i = 0; i < Tile::kWarpM / 16; ++i)
        ldmatrix_x4(a[i], (a_from ^ k_block * 32) + i * 16 * Tile::kRowBytes);
    UNROLL for (int i = 0; i < Tile::kWarpN / 16; ++i) {
      uint32_t two[4];
      ldmatrix_x4(two, (b_from ^ k_block * 32) + i * 16 * Tile::kRowBytes);
      b[2 * i][0] = two[0], b[2 * i][1] = two[1], b[2 * i + 1][0] = two[2], b[2 * i + 1][1] = two[3];
    }
  }
};

template <class T, class Tile>
DEV void multiply(MmaSums<Tile>& sums, const MmaFragments<Tile>& f) {
  UNROLL for (int i = 0; i < Tile::kWarpM / 16; ++i)
      // Back and forth, so that a fragment of b is used twice in a row.
      UNROLL for (int j = 0; j < Tile::kWarpN / 8; ++j) {
    const int column = i % 2 == 0 ? j : Tile::kWarpN / 8 - 1 - j;
    mma(T{}, sums.v[i][column], f.a[i], f.b[column]);
  }
}

/// Starts the copies of a stage, if there is one. The group may be empty, so that groups and K tiles count alike.
template <class Tile, class Params, class LoadA, class LoadB>
DEV void copy_stage(const Params& p, LoadA& a, LoadB& b, bool there, uint32_t to) {
  if (there) {
    a.copy(p, to);
    b.copy(p, to + Tile::kM * Tile::kRowBytes);
  }
  cp_async_commit();
}

/// Accumulates `k_tiles` K tiles. Loaders copy one per call, in the order of K. On return all copies are done
/// and shared memory is free.
template <class Tile, class T, class Params, class LoadA, class LoadB>
DEV void mma_loop(const Params& p, MmaSums<Tile>& sums, LoadA& a, LoadB& b, int k_tiles) {
  constexpr int kBlocks = Tile::kRowBytes / 32;
  const uint32_t shared = shared_address(shared_memory());
  // ldmatrix addresses of lane l: for a, rows l % 16 at chunk l / 16; for b, rows l % 8 + l / 16 * 8 at chunk l / 8 %
  // 2.
  const int l = lane(), a_row = l % 16, b_row = l % 8 + l / 16 * 8;
  const uint32_t a_at =
      (warp() / Tile::kWarpsN * Tile::kWarpM + a_row) * Tile::kRowBytes + (l / 16 ^ Tile::swizzle(a_row)) * 16;
  const uint32_t b_at = (Tile::kM + warp() % Tile::kWarpsN * Tile::kWarpN + b_row) * Tile::kRowBytes +
                        (l / 8 % 2 ^ Tile::swizzle(b_row)) * 16;
  auto copy = [&](int k_tile, uint32_t stage) { copy_stage<Tile>(p, a, b, k_tile < k_tiles, shared + stage); };

  UNROLL for (int s = 0; s < Tile::kStages - 1; ++s) copy(s, s * Tile::kStageBytes);
  cp_async_wait<Tile::kStages - 2>();
  sync_block();
  uint32_t read = 0;
  MmaFragments<Tile> fragments[2];
  fragments[0].load(shared + a_at, shared + b_at, 0);
  NO_UNROLL for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    UNROLL for (int k_block = 0; k_block < kBlocks; ++k_block) {
      if (k_block == kBlocks - 1) {  // the next stage is complete, and all have read this one
        cp_async_wait<Tile::kStages - 2>();
        sync_block();
        read = read == Tile::kPipelineBytes - Tile::kStageBytes ? 0 : read + Tile::kStageBytes;
      }
      fragments[(k_block + 1) % 2].load(shared + read + a_at, shared + read + b_at, (k_block + 1) % kBlocks);
      if (k_block == 0)  // overwrites the previous stage, which the last K tile's barrier freed
        copy(k_tile + Tile::kStages - 1, (read == 0 ? Tile::kPipelineBytes : read) - Tile::kStageBytes);
      multiply<T>(sums, fragments[k_block % 2]);
    }
  }
  cp_async_wait<0>();
  sync_block();
}

/// Multiplies 16 bytes of K of a stage in f32, on the CUDA cores: a lane computes the results that mma would leave it,
/// each in the order of K. `a`, `b`: the stage's rows of the warp.
template <class Tile>
DEV void multiply_chunk(MmaSums<Tile>& sums, const unsigned char* a, const unsigned char* b, int chunk) {
  constexpr int kLeft = Tile::kWarpM / 8;
  const int row = lane() / 4, column = lane() % 4 * 2;
  const int left_at = row * Tile::kRowBytes + (Tile::swizzle(row) ^ chunk) * 16;
  Frag<float, 4> left[kLeft];
  UNROLL for (int i = 0; i < kLeft; ++i) left[i] =
      load<float, 4>(reinterpret_cast<const float*>(a + left_at + i * 8 * Tile::kRowBytes));
  UNROLL for (int j = 0; j < Tile::kWarpN / 4; ++j) {
    const int at = (column + j % 2) * Tile::kRowBytes + (Tile::swizzle(column + j % 2) ^ chunk) * 16;
    const auto right = load<float, 4>(reinterpret_cast<const float*>(b + at + j / 2 * 8 * Tile::kRowBytes));
    UNROLL for (int k = 0; k < 4; ++k) {
      UNROLL for (int i = 0; i < kLeft; ++i) sums.v[i / 2][j / 2][i % 2 * 2 + j % 2] += left[i].v[k] * right.v[k];
    }
  }
}
template <class Tile>
DEV void multiply_plain(MmaSums<Tile>& sums, const unsigned char* a, const unsigned char* b) {
  constexpr int kChunks = Tile::kRowBytes / 16;
  if constexpr (Tile::kWarpM > 32) {  // all at once would take registers that the sums need
    NO_UNROLL for (int chunk = 0; chunk < kChunks; ++chunk) multiply_chunk<Tile>(sums, a, b, chunk);
  } else {
    UNROLL for (int chunk = 0; chunk < kChunks; ++chunk) multiply_chunk<Tile>(sums, a, b, chunk);
  }
}

template <class Tile>
DEV void add_sums(MmaSums<Tile>& to, const MmaSums<Tile>& from) {
  UNROLL for (int i = 0; i < MmaSums<Tile>::kRows; ++i) UNROLL for (int j = 0; j < MmaSums<Tile>::kColumns; ++j) {
    UNROLL for (int e = 0; e < 4; ++e) to.v[i][j][e] += from.v[i][j][e];
  }
}

/// mma_loop in f32. kRanges: every `range` K tiles are summed apart, and these sums are added in order
/// (GemmSizes::range).
template <class Tile, bool kRanges, class Params, class LoadA, class LoadB>
DEV void plain_loop(const Params& p, MmaSums<Tile>& sums, LoadA& a, LoadB& b, int k_tiles, int range) {
  const uint32_t shared = shared_address(shared_memory());
  const unsigned char* const left = shared_memory() + warp() / Tile::kWarpsN * Tile::kWarpM * Tile::kRowBytes;
  const unsigned char* const right =
      shared_memory() + (Tile::kM + warp() % Tile::kWarpsN * Tile::kWarpN) * Tile::kRowBytes;
  auto copy = [&](int k_tile, int stage) { copy_stage<Tile>(p, a, b, k_tile < k_tiles, shared + stage); };

  UNROLL for (int s = 0; s < Tile::kStages - 1; ++s) copy(s, s * Tile::kStageBytes);
  MmaSums<Tile> part = {};
  int read = 0, remaining = range;
  NO_UNROLL for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    cp_async_wait<Tile::kStages - 2>();
    sync_block();  // the stage is complete, and all have read the previous one
    copy(k_tile + Tile::kStages - 1, (read == 0 ? Tile::kPipelineBytes : read) - Tile::kStageBytes);
    multiply_plain<Tile>(kRanges ? part : sums, left + read, right + read);
    read = read == Tile::kPipelineBytes - Tile::kStageBytes ? 0 : read + Tile::kStageBytes;
    if (kRanges && --remaining == 0) {
      add_sums(sums, part);
      part = {};
      remaining = range;
    }
  }
  if (kRanges && remaining != range) add_sums(sums, part);
  cp_async_wait<0>();
  sync_block();
}

/// The position of a warp's results: its first row in the tile, its first column in a lane of the tile, and its slab of
/// shared memory.
template <class Tile, int kLanes>
DEV WarpPlace mma_place() {
  return {warp() / Tile::kWarpsN * Tile::kWarpM, warp() % Tile::kWarpsN * (Tile::kWarpN / kLanes),
          reinterpret_cast<float*>(shared_memory() + warp() * Tile::kSlabBytes)};
}

/// All threads of the block, as a crew for mma_meet.
struct WholeBlock {
  DEV static int index() { return thread_index(); }
  DEV static void sync() { sync_block(); }
};

}  // namespace tenon::device
