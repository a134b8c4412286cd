// The tape interpreter: evaluates expressions over a domain block by block, in f32 slots that stay in the L1 cache.
//
// A tape is compiled from root expressions in form (views on leaves; Pointwise; Reduce over the last axis and its
// broadcast back). Values are either full (a slot of rows by columns) or uniform (one number per row: reductions,
// constants, operands broadcast along columns); a value that is the same for all rows of a block is computed for one
// row only. Equal subexpressions are one node, so they are computed once. Results are stored at their `place` in
// memory, or returned as f32 rows to a tile kernel.
#pragma once
#include <array>
#include <memory>
#include <string>

#include "tenon/backend/cpu/access.h"
#include "tenon/backend/cpu/tape/vec_ops.h"
#include "tenon/backend/cpu/tile/gemm.h"

namespace tenon::cpu {

/// One result of a tape.
struct TapeOutput {
  Expr value;                ///< over the domain, or, with a last axis of 1, one number per row
  Expr place;                ///< views over the leaf to write (kernels/form.h); empty: f32 rows for the caller
  DType dtype = DType::F32;  ///< stored type
};

struct TapeOptions {
  int64_t max_cols = 0;   ///< most columns per call; 0: the domain's
  int split = -1;         ///< axes before this one form the row number; -1: all but the last
  bool collapse = false;  ///< merge trailing axes into longer rows if the last axis is short
  /// Memory that is written is only read, if at all, at the same element, so it may be updated in place. For `stream`
  /// only.
  bool elementwise = false;
};

/// One evaluation. If the tape reduces rows, the block must consist of whole rows.
struct TapeCall {
  Block block;
  Bases bases = nullptr;
  void* workspace = nullptr;    ///< workspace_bytes() for the calling thread, 64-byte aligned, any contents
  float* const* acc = nullptr;  ///< per lane: the accumulator tile of `block`, rows acc_ld apart
  int64_t acc_ld = 0;
  float* rows = nullptr;  ///< where an output without a place goes, rows rows_ld apart
  int64_t rows_ld = 0;
};

class Tape {
 public:
  /// At most one output may lack a place. Leaves named acc.N are the lanes of the accumulator. Throws Error(Internal)
  /// for expressions that are not in form.
  Tape(std::span<const TapeOutput> outputs, const Shape& domain, LeafTable& leaves, const VecOps& ops,
       TapeOptions options = {});

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  bool reduces_rows() const { return reduces_rows_; }
  /// Preferred number of rows per call: 16 if an operand's rows are adjacent in memory, else 1.
  int64_t rows_at_once() const { return rows_at_once_; }
  /// Scratch bytes per thread.
  int64_t workspace_bytes() const;
  void run(const TapeCall& call) const;
  /// For elementwise tapes: processes the first `count` elements of every vector at `bases`. `rows` receives an output
  /// without a place.
  void stream(Bases bases, int64_t count, void* workspace, float* rows = nullptr) const;
  /// One line per instruction: values by number, and the operation and operands that produce them.
  std::string text() const;
  /// Number of instructions per block.
  int length() const { return static_cast<int>(code_.size()); }

 private:
  friend class TapeCompiler;

  enum class Op : uint8_t { Load, Constant, Accumulator, Pointwise, Round, Reduce, Expand };
  // A cache line (see Access).
  struct alignas(64) Instruction {
    Op op;
    bool every_row = false;  // the result goes to the caller, so all of its rows must be written
    bool in_place = false;   // Load: may refer to memory instead of filling the slot
    bool direct = false;     // the result may be written directly to where it is stored (elementwise)
    uint8_t operands = 0;
    int dst = -1;                         // value
    std::array<int, kMaxOperands> src{};  // values
    int index = 0;  // Load: access; Accumulator: lane; Constant, Pointwise: the first of its params_
    const PointwiseFn* functions = nullptr;
    PointwiseFn round = nullptr;
    ReduceFn reduce = nullptr;
    MoveFn move = nullptr;
  };
  struct Value {
    bool uniform = false;
    bool external = false;  // the caller's rows
    int slot = -1;
  };
  struct Store {
    int value;
    int place;  // access
    MoveFn move;
    bool direct = false;  // done by the instruction that computes the value, for whole vectors
  };
  // A value during a block: rows (uniform: numbers) `ld` apart; `one`: the same for all rows, ld = 0.
  struct Live {
    float* p;
    int64_t ld;
    bool one;
  };
  struct Frame {
    const TapeCall& call;
    Block block;
    Live* live;
    std::byte* slots;
  };

  void run_block(const Frame& f) const;
  struct StreamCall;
  int64_t stream_bytes() const;
  size_t stream_calls(const Frame& f, Bases bases, int64_t at, bool whole, float* rows, StreamCall* calls) const;
  void stream_blocks(std::span<StreamCall> calls, Bases bases, int64_t n) const;
  std::byte* element(int access, Bases bases, int64_t at) const;
  void load(const Instruction& in, const Frame& f) const;
  void load_uniform(const Instruction& in, const Frame& f) const;
  void pointwise(const Instruction& in, const Frame& f) const;
  void pointwise_uniform(const Instruction& in, const Frame& f) const;
  void reduce(const Instruction& in, const Frame& f) const;
  void expand(const Instruction& in, const Frame& f) const;
  void store(const Store& s, const Frame& f) const;
  Live target(int value, const Frame& f) const;
  float* slot(int value, const Frame& f) const;
  const float* params(const Instruction& in) const { return params_.data() + in.index; }

  const VecOps* ops_;
  int64_t rows_ = 1, cols_ = 1;
  int64_t block_rows_ = 1, block_cols_ = 1;
  int full_slots_ = 0, uniform_slots_ = 0;
  bool reduces_rows_ = false;
  int64_t rows_at_once_ = 1;
  std::vector<Instruction> code_;
  std::vector<Value> values_;
  std::vector<Access> accesses_;
  std::vector<Store> stores_;
  std::vector<float> params_;                       // of constants: the number, padded to a vector
  std::vector<std::string> labels_, destinations_;  // of instructions and stores, for text()
};

}  // namespace tenon::cpu
