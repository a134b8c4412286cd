// Text of the maths of a launch: a flat tape, one line a node, as the functor that a skeleton of device/ is specialised
// with. Without row reductions it computes one fragment; with them, a whole row held by a team of threads.
#pragma once
#include <deque>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

#include "tenon/backend/cuda/codegen/access_source.h"

namespace tenon::cuda {

/// A result and where it goes; without a place it is returned to the caller (behind others that have one: in the last
/// argument `counted`).
struct ProgramOutput {
  Expr value, place;
  DType dtype = DType::F32;
};

class ProgramSource {
 public:
  /// `most`: columns of a fragment at most. Throws Error(Internal) for what is not in form.
  ProgramSource(std::span<const ProgramOutput> outputs, const MatrixDomain& domain, Params& params, int most);

  int run() const { return run_; }
  bool reduces() const { return reduces_; }
  /// Places that a fragment is loaded from: tensors, each of those that are joined.
  int pieces() const;
  /// Headers of the node bodies in use, as include lines.
  std::string includes() const;
  /// The functor: `eval(p, row, col)`, in two parts too where it only stores, as device/map.h wants it; with
  /// accumulators `compute(p, row, col, acc)`, which gives a `Computed`, and `store(p, row, col, computed)`; with
  /// reductions `loads<R>(p, row, cols, team, l)` and `run<R>(p, row, cols, team, l)`.
  std::string functor(const std::string& name, int lanes = 0);
  /// With accumulators: what is read beside them has a function of its own too, `loads(p, row, col)`, whose result
  /// `compute` takes behind them. Called before the functor is made.
  void load_apart() { loads_apart_ = true; }
  /// What `loads` of a map reads is read past the first-level cache: it may run in front of a kernel's wait. Called
  /// before the functor is made; afterwards loads_early() says whether all of it is.
  void load_early() { early_ = true; }
  bool loads_early() const { return early_; }
  /// True if a program with reductions has too few registers for all that its rows read, and leaves floats in a cache.
  bool loads_late() const;
  /// Of such a program: floats that every row reads.
  int columns() const;
  /// These lie in shared memory from byte `at` of each thread's own on, put there once a block by
  /// `columns<R>(p, cols, team)`. Called before the functor is made.
  void keep_columns(const std::string& at) { columns_at_ = at; }
  /// Tensors of a row that are loaded before its first reduction, where each of their fragments is 16 bytes of memory;
  /// else 0.
  int tensors_ahead() const;
  /// These lie in shared memory from byte `at` on, in one of several such places, of each of `threads` its own: `loads`
  /// only begins to bring them. Called before the functor is made.
  void keep_rows(const std::string& at, int threads);
  /// Registers for what stays in them, from one reduction to the next or from the start, of a fragment of a row.
  int held() const;
  /// Passes over a row: one more than reductions that wait for each other.
  int stages() const { return stages_; }
  /// Rows of a map whose loads are under way together, once the functor is made.
  int at_once() const { return at_once_; }
  /// Nodes that became lines.
  int length() const { return lines_; }

 private:
  struct Value {
    std::string name;
    bool uniform = false;
    DType holds = DType::F32;
  };
  enum class Kind { Accumulator, Literal, Load, Computed };
  Kind kind(const Expr& e) const;
  bool uniform(const Expr& e);
  int level(const Expr& e);
  AccessSource& access(const Expr& view);
  void choose_run(std::span<const ProgramOutput> outputs, int most);
  void find_arrays();
  void find_kept();
  int stored_in(const ProgramOutput& o);
  std::string first_loads();
  std::string row_values();
  std::string columns_body();
  std::vector<Expr> values() const;
  void collect(const Expr& e, std::set<const Node*>& seen);

  Value value(const Expr& e);
  Value compute(const Expr& e);
  Value load(const Expr& e);
  bool in_shared(const Expr& view) const;
  Value pointwise(const Expr& e);
  Value rounding(const Expr& e);
  std::string quotient(const Expr& e);
  Value kept(const Expr& e);
  void body_of(const Expr& e, std::string& call, const std::function<std::string(const Value&)>& element);
  std::string fresh() { return "v" + std::to_string(made_++); }
  AccessSource& place_of(const ProgramOutput& o);
  std::string result(const ProgramOutput& o);
  std::string stored(const ProgramOutput& o);
  std::string returned(const ProgramOutput& o);
  std::string in_two(const std::string& at, const std::string& accumulators, const std::string& row);
  std::string stage(int number);
  std::string reducing_body();
  std::string plain_body(int lanes);
  std::string struct_name(const Expr& e);

  std::vector<ProgramOutput> outputs_;
  MatrixDomain domain_;
  Params& params_;
  int run_ = 1, made_ = 0, lines_ = 0, stages_ = 1, at_once_ = 1;
  int beside_ = 0;       // fragments that are loaded where they are used
  bool joined_ = false;  // whether a tensor that is loaded apart is made of several
  int burden_ = 0;  // of what is loaded apart, on registers: tensors, those of floats and each of joined ones once more
  bool reduces_ = false;
  std::deque<std::pair<const Node*, AccessSource>> accesses_;  // of loads, in a fixed order: equal launches, equal text
  std::vector<AccessSource> places_;                           // by output; not of those without a place
  std::unordered_map<const Node*, int> levels_;
  std::unordered_map<const Node*, bool> uniforms_;
  std::vector<Expr> reductions_;
  struct Held {
    Expr view;
    std::string name;
    bool halves;  // as in memory
    bool again;   // another's, in another order
    bool late;    // loaded by each stage that reads it
    bool column;  // and the same for all rows
  };
  std::vector<Held> arrays_;  // loads that are under way before the first reduction
  // Values rounded to 16 bits that a later stage than their first reads, and their names: they are not computed again.
  std::map<const Node*, std::string> kept_;
  std::set<const Node*> known_;                             // of those: what an earlier stage has left
  std::unordered_map<const Node*, std::string> quotients_;  // by divisor
  std::unordered_map<const Node*, Value> outer_, inner_;
  std::map<double, std::string> literals_;
  std::string columns_at_, rows_at_;
  int threads_ = 0;           // of a block whose rows lie in shared memory
  bool loads_apart_ = false;  // loads have a function of their own
  bool early_ = false;
  std::string before_, loop_, members_, loads_;
  std::set<std::string> headers_;
};

/// The struct with a node's body, in tenon::nodes, and the header that has it.
struct NodeBody {
  const char* name;
  const char* header;
};
const NodeBody& node_body(const NodeType* type);

/// The domain as a matrix: rows of the last axis, or longer ones where `joins` and rows are short.
MatrixDomain matrix_domain(const Shape& shape, bool joins);

}  // namespace tenon::cuda
