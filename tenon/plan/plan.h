// Plans: what runs, in which order, over which memory. A plan is data: it prints, parses back and can be compared.
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

struct Buffer {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  BufferRole role = BufferRole::Temporary;
  Rate rate = Rate::Step;  ///< when it is written
  int64_t offset = -1;     ///< in the arena, bytes; multiples of 64
  int64_t bytes = 0;
  bool outside = false;  ///< an input or output in the caller's memory: takes no room in the arena
  bool stored = false;   ///< a value of weights alone, kept where weights are: takes no room either

  /// Neither outside, nor stored, nor a state, which outlives the plan.
  bool in_arena() const { return !outside && !stored && role != BufferRole::State; }
};

/// Launches that run equally often.
struct Phase {
  Rate rate = Rate::Step;
  std::vector<Launch> launches;
};

/// Counts that `explain` reports.
struct PlanCounts {
  int total = 0, elementwise = 0, concat = 0, permute = 0, upsample = 0;
};

struct Plan {
  std::string name;
  PrecisionPolicy precision = {};  ///< by which the anchors' arithmetic was set
  std::shared_ptr<Graph> graph;    ///< owns the launches' bodies
  std::vector<Buffer> buffers;
  std::vector<Phase> phases;  ///< slowest rate first
  int64_t arena_bytes = 0;

  const Buffer& buffer(const std::string& name) const;
  /// True if what the launch writes is stored: it runs when the plan is prepared, and again when a weight has changed.
  bool stored(const Launch& launch) const;
  const Phase* phase(Rate rate) const;
  /// Launches of the Step phase by kind: those without an anchor count as elementwise, concat, permute or upsample if
  /// they do nothing but that.
  PlanCounts counts(Rate rate = Rate::Step) const;
  /// Bytes that one run of the phase moves.
  int64_t bytes(Rate rate = Rate::Step) const;
};

/// Text form and back. parse_plan throws Error(Usage) with a line number.
std::string print_plan(const Plan& plan);
Plan parse_plan(std::string_view text);

struct PlanOptions {
  std::string name = "plan";
  bool fusion = true;  ///< false: one launch per node
  bool hoist = true;   ///< values that do not change between steps in phases of their own
  bool merge_siblings = true;
  bool outside = false;  ///< tensors in and out stay in the caller's memory, which Executable::bind names
  /// What a compiler around a library's kernels can do, to compare with: anchors by themselves, with a bias at most,
  /// and what stands between them fused. Siblings are not merged, scales not folded.
  bool anchors_alone = false;
  bool fold_scales = true;  ///< constant scales of linear layers into their weights
  PrecisionPolicy precision = {};
  Target target = {};
};

/// Partitions the DAG below `results` into launches and lays out memory. Deterministic. Throws Error(Usage) that names
/// the node if something cannot be run by any skeleton.
Plan make_plan(std::span<const Result> results, const PlanOptions& options = {});

/// Fills in Buffer::stored: of launches of the constant phase that read weights, literals and stored buffers alone.
void find_stored(Plan& plan);
/// Fills in Launch::settled of every launch.
void find_settled(Plan& plan);
/// The first launch that would not find a state at the value it reads, or that reads what it writes itself, in a
/// sentence; empty if there is none.
std::string state_hazard(const Plan& plan);
/// Assigns offsets by liveness and sets arena_bytes (exact peak of the arena).
void lay_out_memory(Plan& plan);

}  // namespace tenon
