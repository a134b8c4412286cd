// Plans: what runs, in which order, in which memory. A plan is data: it can be printed, parsed back and compared.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tenon/kernels/launch.h"
#include "tenon/kernels/target.h"
#include "tenon/plan/precision.h"

namespace tenon {

/// What a buffer is to the caller.
enum class BufferRole : uint8_t { Temporary, Input, Output, State };
/// Their names in text.
inline constexpr std::string_view kRoleNames[] = {"temporary", "input", "output", "state"};

struct Buffer {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  BufferRole role = BufferRole::Temporary;
  Rate rate = Rate::Step;  ///< when it is written
  int64_t offset = -1;     ///< in the arena, in bytes; a multiple of 64
  int64_t bytes = 0;
  bool outside = false;  ///< input, output or state in the caller's memory: takes no space in the arena
  bool stored = false;   ///< depends on weights alone and is kept with them: takes no space either

  /// Neither outside, nor stored, nor a state, which outlives the plan.
  bool in_arena() const { return !outside && !stored && role != BufferRole::State; }
};

/// Launches that run equally often.
struct Phase {
  Rate rate = Rate::Step;
  std::vector<Launch> launches;
};

struct Plan {
  std::string name;
  PrecisionPolicy precision = {};  ///< the policy that set the anchors' arithmetic
  std::shared_ptr<Graph> graph;    ///< owns the launches' expressions
  std::vector<Buffer> buffers;
  std::vector<Phase> phases;  ///< slowest rate first
  int64_t arena_bytes = 0;

  const Buffer& buffer(const std::string& name) const;
  /// True if the launch's outputs are stored: it runs when the plan is prepared, and again after a weight has changed.
  bool stored(const Launch& launch) const;
  const Phase* phase(Rate rate) const;
};

/// The plan as text, which parse_plan (explain/parse_plan.h) reads.
std::string print_plan(const Plan& plan);
/// The end of a buffer's line in it: where the buffer is.
std::string place_text(const Buffer& buffer);
/// Writes <plan>.plan (as print_plan) and, for launch i, forms/<plan>/<i>-<launch>.txt: its skeleton and form, i.e.
/// lets, the contents of each hole, and outputs, one node per line. Does nothing unless TENON_DUMP is set.
void dump_plan(const Plan& plan);

struct PlanOptions {
  std::string name = "plan";
  bool fusion = true;  ///< false: one launch per node
  bool hoist = true;   ///< put values that do not change every step in phases of their own
  bool merge_siblings = true;
  bool outside = false;  ///< inputs, outputs and states are in the caller's memory (Executable's `bound`, bind)
  /// For comparison, what a compiler around library kernels can do: anchors alone, with at most a bias, and the maths
  /// between them fused. Siblings are not merged and scales not folded.
  bool anchors_alone = false;
  bool fold_scales = true;  ///< fold constant scales of linear layers into their weights
  PrecisionPolicy precision = {};
  bool copies_weights = false;  ///< e4m3 weights that are multiplied both ways are stored both ways
  Target target = {};
};

/// Partitions the DAG below `results` into launches and lays out memory. Deterministic. Results must be different
/// values with names that no input or state has. Throws Error(Usage), also that names the node if no skeleton can run
/// it.
Plan make_plan(std::span<const Result> results, const PlanOptions& options = {});

/// Sets Buffer::stored, for outputs of constant-phase launches that read only weights, literals and stored buffers.
void find_stored(Plan& plan);
/// Sets Launch::settled of every launch.
void find_settled(Plan& plan);
/// Describes, in a sentence, the first launch that would read a state at the wrong version or that reads a state it
/// writes itself; empty if there is none.
std::string state_hazard(const Plan& plan);
/// Assigns offsets by liveness and sets arena_bytes to the exact peak. Throws Error(Usage) unless buffers have names of
/// their own that do not begin with '%', and launches use buffers of their operands' and results' types and shapes.
void lay_out_memory(Plan& plan);

}  // namespace tenon
