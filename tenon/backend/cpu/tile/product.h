// The loop shared by gemm and conv2d: packed lines x packed panels -> epilogue tiles. Also the allocator of scratch
// parts.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tenon/backend/cpu/tile/gemm.h"

namespace tenon::cpu {

/// Panels per lane in a column group, the width of an epilogue tile.
inline constexpr int kGroupPanels = kMaxTileCols / kPanel;
/// Row tiles whose sums are kept while iterating over chunks of K.
inline constexpr int kTilesAtOnce = 4;
inline constexpr int64_t kTileFloats = kMaxTileRows * kMaxTileCols;
/// Bytes of a group's panels that are made at once, for all those row tiles, in the L2 cache.
inline constexpr int64_t kMadeBytes = 256 << 10;

/// Hands out 64-byte aligned parts of a scratch buffer; without a buffer it only sums up sizes.
class ScratchCursor {
 public:
  explicit ScratchCursor(void* base = nullptr) : base_(static_cast<std::byte*>(base)) {}
  template <class T>
  T* take(int64_t count) {
    std::byte* p = base_ ? base_ + used_ : nullptr;
    used_ += round_up(count * int64_t{sizeof(T)}, 64);
    return reinterpret_cast<T*>(p);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

/// `rows` <= kMaxTileRows consecutive rows: the offset of their lines in packed A, and the number of the first one.
struct RowTile {
  int64_t a_offset;  ///< bytes
  int64_t row0;
  int rows;
};
using RowTileFn = FunctionRef<RowTile(int64_t tile)>;

/// The product of packed A and one packed B.
class Product {
 public:
  const TileOps& ops;
  const PackedShape& shape;
  const void* b;
  const void* a;
  const int64_t* a_off;  ///< byte offset of each term
  int64_t a_stride;      ///< bytes between rows
  RowTileFn tile;
  TileFn out;
  bool streams = false;  ///< as in TileArgs
  PanelsFn panels = {};  ///< of a B that is packed on the fly

  /// Computes tiles [tile0, tile1) of column group `group` and passes them to `out`. `sums`: sum_floats(shape) floats.
  void run(int64_t group, int64_t tile0, int64_t tile1, float* sums, int thread) const {
    const int64_t panel0 = group * kGroupPanels;
    run_panels(panel0, std::min<int64_t>(kGroupPanels, shape.panels() - panel0), tile0, tile1, sums, thread);
  }
  /// The same for up to kGroupPanels panels, starting at any panel.
  void run_panels(int64_t panel0, int64_t panels, int64_t tile0, int64_t tile1, float* sums, int thread) const;
  /// Adds terms [term, term_end) to the sums of the first `tiles` tiles of a column group (the first term overwrites
  /// them), and passes the tiles to `out` after the last term. `sums`: tiles * lanes * kTileFloats floats, kept from
  /// call to call; `made`: made_floats(shape) floats.
  void run_part(int64_t group, int64_t tiles, int64_t term, int64_t term_end, float* sums, std::byte* made,
                int thread) const;

 private:
  // Some columns times some rows.
  struct Block {
    int64_t panel0;
    int panels;
    int64_t tile0, tile1;
  };
  // Adds terms [term, term_end) to the sums of a block, `chunk` at a time; makes their panels at `made`, unless null.
  void add(const Block& block, int64_t term, int64_t term_end, int64_t chunk, float* sums, std::byte* made) const;
  void finish(const Block& block, float* sums, int thread) const;
  // Widens terms of a block's panels to bf16, or packs them, lane by lane and panel by panel.
  void make(const Block& block, int64_t term, int64_t term_end, std::byte* made) const;
  // Adds terms [term, term_end), at `made` unless null, to the sums of a block.
  void multiply(const Block& block, int64_t term, int64_t term_end, float* sums, const std::byte* made) const;
  float* sums_of(float* sums, int64_t tile_index, int lane) const {
    return sums + (tile_index * shape.lanes + lane) * kTileFloats;
  }
};

/// TileArgs::last for `k` elements of K.
int last_words(int64_t k, DType type);
/// Column groups per lane.
inline int64_t column_groups(const PackedShape& shape) { return div_up(shape.panels(), kGroupPanels); }
/// Floats of a thread's buffer for panels that are made when they are multiplied; 0 if none are.
inline int64_t made_floats(const PackedShape& shape) {
  return shape.made_when_read() ? kMadeBytes / int64_t{sizeof(float)} : 0;
}
/// Floats of a thread's buffer for the sums of a group, followed by those panels.
int64_t sum_floats(const PackedShape& shape);
/// Number of parts to split the row tiles into, so that (group, part) tasks keep all threads busy.
int64_t row_parts(int64_t groups, int64_t tiles, int threads);

/// Packs rows of a RowSource, from row0 on, into lines. `args`: as for TileOps::pack_rows, but for the source.
/// `staging`: staging_floats(args.k, source.rows_at_once).
void pack_source_rows(const TileOps& ops, const RowSource& source, int64_t row0, PackRowsArgs args, float* staging,
                      int thread);
/// Rows that pass through a thread's staging buffer at once, and the size of that buffer.
int64_t staging_rows(int64_t k, int64_t rows_at_once = 1);
int64_t staging_floats(int64_t k, int64_t rows_at_once = 1);

/// Keeps tiles configured during this scope (AMX).
class TileScope {
 public:
  explicit TileScope(const TileOps& ops) : ops_(ops) { ops_.enter(); }
  ~TileScope() { ops_.leave(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  const TileOps& ops_;
};

}  // namespace tenon::cpu
