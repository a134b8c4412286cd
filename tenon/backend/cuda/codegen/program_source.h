// Kernel source of a launch's maths: a flat tape, one line per node, as the functor with which a template in device/ is
// instantiated. Without row reductions it computes one fragment; with them, a whole row held by a team of threads.
#pragma once
#include <deque>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

#include "tenon/backend/cuda/codegen/access_source.h"
#include "tenon/backend/uniform.h"

namespace tenon::cuda {

/// A result and its destination. Without a place it is returned to the caller (next to others that have one: in the
/// last argument, `counted`).
struct ProgramOutput {
  Expr value, place;
  DType dtype = DType::F32;
};

class ProgramSource {
 public:
  /// `most`: largest number of columns per fragment. Throws Error(Internal) for a launch not in form.
  ProgramSource(std::span<const ProgramOutput> outputs, const MatrixDomain& domain, Params& params, int most);

  int width() const { return width_; }
  bool reduces() const { return reduces_; }
  /// Number of tensors from which a fragment may be loaded; joined tensors count separately.
  int pieces() const;
  /// Headers of the nodes in use, as include lines.
  std::string includes() const;
  /// The functor: `eval(p, row, col)`, also split in two if it only stores, as device/launches/map.h expects; with
  /// accumulators `compute(p, row, col, acc)`, which returns a `Computed`, and `store(p, row, col, computed)`; with
  /// reductions `loads<R>(p, row, cols, team, l)` and `run<R>(p, row, cols, team, l)`.
  std::string functor(const std::string& name, int lanes = 0);
  /// With accumulators: other operands are loaded by a separate function, `loads(p, row, col)`, whose result `compute`
  /// takes as its last argument. Call it before the functor is made.
  void load_apart() { loads_apart_ = true; }
  /// Loads of a map's `loads` bypass L1, so that they may run before the kernel's wait. Call it before the functor is
  /// made; afterwards loads_early() says whether that holds for all of them.
  void load_early() { early_ = true; }
  bool loads_early() const { return early_; }
  /// True if a program with reductions lacks registers for all that its rows read, and rereads floats from a cache.
  bool loads_late() const;
  /// For such a program: number of f32 operands that every row reads.
  int columns() const;
  /// Puts these into shared memory, each thread's own part from byte `at` on, where `columns<R>(p, cols, team)` stores
  /// them once per block. Call it before the functor is made.
  void keep_columns(const std::string& at) { columns_at_ = at; }
  /// Number of a row's tensors that are loaded before its first reduction, if each of their fragments is 16 bytes of
  /// memory; else 0.
  int tensors_ahead() const;
  /// Puts these into shared memory from byte `at` on, in one of several buffers, with a separate part for each of
  /// `threads`: `loads` only starts the copies. Call it before the functor is made.
  void keep_rows(const std::string& at, int threads);
  /// Registers per fragment of a row that stay live from the start, or from one reduction to the next.
  int held() const;
  /// Rereads floats that all rows share from a cache if a fragment would hold more than `most` registers. Call it
  /// before the functor is made.
  void hold_at_most(int most);
  /// Passes over a row: one more than the number of dependent reductions.
  int stages() const { return stages_; }
  /// Largest number of reductions in one pass, which a team does together.
  int reductions_at_once();
  /// Rows of a map whose loads are in flight together; valid once the functor is made.
  int at_once() const { return at_once_; }
  /// Nodes that became lines.
  int length() const { return lines_; }

 private:
  struct Value {
    std::string name;
    bool uniform = false;
    DType holds = DType::F32;
  };
  bool uniform(const Expr& e);
  int level(const Expr& e);
  AccessSource& access(const Expr& view);
  void choose_width(std::span<const ProgramOutput> outputs, int most);
  void find_arrays();
  void find_kept();
  int stored_in(const ProgramOutput& o);
  std::string first_loads();
  std::string row_values();
  std::string columns_code();
  std::vector<Expr> values() const;
  void collect(const Expr& e, std::set<const Node*>& seen);

  Value value(const Expr& e);
  Value compute(const Expr& e);
  Value load(const Expr& e);
  bool in_shared(const Expr& view) const;
  Value pointwise(const Expr& e);
  Value rounding(const Expr& e);
  bool only_quantized(const Expr& e) const;
  std::string quotient(const Expr& e);
  Value kept(const Expr& e);
  void apply_node(const Expr& e, std::string& call, const std::function<std::string(const Value&)>& element);
  std::string fresh() { return "v" + std::to_string(made_++); }
  AccessSource& place_of(const ProgramOutput& o);
  std::string result(const ProgramOutput& o);
  std::string stored(const ProgramOutput& o);
  std::string returned(const ProgramOutput& o);
  std::string in_two(const std::string& at, const std::string& accumulators, const std::string& row);
  std::string stage(int number);
  std::string reducing_code();
  std::string plain_code(int lanes);
  std::string struct_name(const Expr& e);

  std::vector<ProgramOutput> outputs_;
  MatrixDomain domain_;
  Params& params_;
  int width_ = 1, made_ = 0, lines_ = 0, stages_ = 1, at_once_ = 1;
  int beside_ = 0;       // fragments that are loaded at their use
  bool joined_ = false;  // whether a separately loaded operand is several joined tensors
  int burden_ = 0;       // register pressure of separate loads: one per tensor, joined ones apart; two if f32
  bool reduces_ = false;
  std::deque<std::pair<const Node*, AccessSource>>
      accesses_;                      // of loads, in a fixed order: equal launches, equal source
  std::vector<AccessSource> places_;  // one per output that has a place
  std::unordered_map<const Node*, int> levels_;
  UniformValues uniforms_;
  std::unordered_map<const Node*, int> readers_;  // values and outputs that read a node
  std::vector<Expr> reductions_;
  struct Held {
    Expr view;
    std::string name;
    bool halves;  // in memory format
    bool again;   // another's fragment, reordered
    bool late;    // loaded by each stage that reads it
    bool column;  // late, and the same for all rows
  };
  std::vector<Held> arrays_;  // loads issued before the first reduction
  // Values rounded to 16 bits that are read by a later stage than the first, with their names: not recomputed.
  std::map<const Node*, std::string> kept_;
  std::set<const Node*> known_;                             // the subset that an earlier stage has computed
  std::unordered_map<const Node*, std::string> quotients_;  // by divisor
  std::unordered_map<const Node*, Value> outer_, inner_;
  std::map<double, std::string> literals_;
  std::string columns_at_, rows_at_;
  int threads_ = 0;           // threads of a block whose rows are in shared memory
  bool loads_apart_ = false;  // loads have a separate function
  bool early_ = false;
  std::string before_, loop_, members_, loads_;
  std::set<std::string> headers_;
};

/// A node's struct in tenon::nodes, and its header.
struct NodeStruct {
  const char* name;
  const char* header;
};
const NodeStruct& node_struct(const NodeType* type);

/// A reduction with reduce_of_moments, and its destination, an f32 leaf [samples, channels].
struct Statistic {
  const NodeType* kind;
  Expr place;
};

/// "DEV static void <name>(const Params& p, int64_t at, const Moments& m) {..}": stores element `at` of each statistic.
/// Adds the include lines it needs to `headers`.
std::string statistics_source(const std::string& name, std::span<const Statistic> wanted, Params& params,
                              std::string& headers);

/// The domain as a matrix: rows along the last axis, or longer ones if `joins` and rows are short.
MatrixDomain matrix_domain(const Shape& shape, bool joins);

}  // namespace tenon::cuda
