// Input holes of anchors: rows of an operand, read in place if they are in memory, else computed by a tape; and
// weights, packed once if they are constant.
#pragma once
#include <memory>
#include <optional>

#include "tenon/backend/cpu/launches/launch_kernel.h"
#include "tenon/backend/cpu/tile/gemm.h"
#include "tenon/backend/weights.h"

namespace tenon::cpu {

/// The element type of the tiles for the launch's arithmetic, which must represent all its values: BF16 for bf16 and
/// e4m3, I8 for i8 (linear layers only), else F32. Throws Error(Usage) for an arithmetic without such tiles.
DType tiles_of(const Launch& launch);
/// What is packed to `tiles`: `hole` without an outermost rounding to bf16, if packing does that anyway.
Expr packed_value(const Expr& hole, DType tiles);
/// True if the matrix kernels can read this type directly.
bool kernels_read(DType t);

/// An operand's rows, seen as a matrix.
class RowHole {
 public:
  /// A row is the last axis of `hole`'s shape.
  RowHole(const Expr& hole, DType tiles, LeafTable& leaves, const VecOps& ops);

  const Tape* tape() const { return tape_.get(); }  ///< null if the rows are in memory
  const void* data(Bases bases) const;              ///< null if they are not
  DType type() const { return type_; }
  int64_t ld() const { return ld_; }
  int64_t rows_at_once() const { return tape_ ? tape_->rows_at_once() : 1; }
  /// Computes f32 rows with the tape.
  void fill(int64_t row0, int64_t rows, float* dst, int64_t ld, Bases bases, void* workspace) const;
  /// "memory" or "tape of 5".
  std::string describe() const;

 private:
  std::unique_ptr<Tape> tape_;
  int leaf_ = -1;
  int64_t offset_ = 0, ld_ = 0;
  DType type_ = DType::F32;
};

/// The packed form of a weight: rows in groups (lanes of a linear layer or convolution, matrices of a batched product)
/// of `shape.cols` rows each.
struct WeightGeometry {
  PackedShape shape;
  int64_t batch = 1;
  bool convolution = false;       ///< rows are [c, kh, kw]
  std::optional<DType> winograd;  ///< packed by pack_winograd to this type; only for weights of constant rate
  int64_t channels = 0;
  int kh = 1, kw = 1;

  /// `rows` of a convolution's rows.
  FilterShape filters(int64_t rows) const { return {rows, channels, kh, kw}; }
  int64_t batch_bytes() const;
  int64_t bytes() const { return batch * batch_bytes(); }
  /// As text: everything that the packed bytes depend on.
  std::string text() const;
};

/// A hole that is a weight: how to find and pack its rows.
class WeightHole {
 public:
  WeightHole(const Expr& hole, const WeightGeometry& geometry, LeafTable& leaves, const Engine& engine);

  /// Null if rows are read from memory.
  const Tape* tape() const { return tape_.get(); }
  int64_t pack_scratch() const;
  /// Packs some panels of a linear layer's rows in memory to bf16.
  void pack(const TileOps& ops, Bases bases, const PanelRange& range, std::byte* dst) const;
  /// Packs a weight whose leaves are parameters.
  void pack(Engine& engine, const WeightMaking& with, std::byte* dst) const;
  /// Packs a weight that changes between runs.
  void pack(Engine& engine, Bases bases, FunctionRef<void*(int thread)> workspace, std::byte* dst,
            std::byte* scratch) const;

 private:
  // Rows [row, row + rows), from element `offset` of a leaf on; `ld` is the stride of rows or, if turned, of K.
  struct Part {
    int leaf;
    int64_t row, rows, offset, ld;
    bool turned;
  };
  bool find_parts(const Expr& hole, int split, LeafTable& leaves);
  bool cut(const Piece& piece);
  int64_t position(int64_t row) const;
  void pack(Engine& engine, Bases bases, const std::vector<DType>& types, std::byte* dst) const;
  void pack_parts(Engine& engine, Bases bases, FunctionRef<DType(int leaf)> type, std::byte* dst) const;
  void pack_part(Engine& engine, const Part& part, const void* data, DType type, std::byte* dst) const;
  void pack_rows(Engine& engine, WeightRowsFn rows, std::byte* dst, std::byte* scratch) const;
  void pack_winograd_rows(Engine& engine, Bases bases, std::byte* dst) const;
  void fill(int64_t row0, int64_t rows, float* to, int64_t ld, Bases bases, void* workspace) const;
  bool reads_directly(const ParamView& view, const Expr& leaf) const;

  WeightGeometry geometry_;
  int64_t row_elements_ = 0;
  const LeafTable& leaves_;
  std::vector<Part> parts_;
  std::unique_ptr<Tape> tape_;
  int threads_;
};

/// The packed form of a hole that reads weights only.
WeightRequest packed_weights(const Expr& hole, const WeightGeometry& geometry, std::shared_ptr<Engine> engine);

}  // namespace tenon::cpu
