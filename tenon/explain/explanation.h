// An explained plan: plain data, made once, and its text form.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tenon/explain/plan_counts.h"
#include "tenon/explain/readable.h"
#include "tenon/explain/roofline.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/memory_plan.h"

namespace tenon {

struct PlanKernels;

struct ExplainedHole {
  std::string name;
  ReadableText value;
  std::string type;  ///< "bf16[2,64,64,320]"
};

struct ExplainedLaunch {
  std::string name, skeleton, anchor;
  size_t number = 0;  ///< in the whole plan, phases in order
  Rate rate = Rate::Step;
  std::vector<ExplainedHole> lets;                          ///< small values computed first
  std::vector<ExplainedHole> holes;                         ///< what fills the anchor's inputs
  std::vector<ExplainedHole> outputs;                       ///< what is written; `name` is the buffer
  std::vector<std::pair<std::string, std::string>> stored;  ///< buffers, and why they are stored
  std::vector<KeptApart> apart;
  std::vector<std::string> reads, writes;  ///< buffers
  int64_t bytes = 0, unfused_bytes = 0;
  double flops = 0;
  bool counts_keys = false;         ///< attention over a cache: `bytes` has all of it, `flops` is unknown (0)
  std::optional<DType> arithmetic;  ///< of the anchor, where it has one
  int kernels = 1;                  ///< that a run of it puts on the device
  std::optional<double> seconds;
  std::string how;  ///< how the backend runs it
};

struct ExplainedBuffer {
  std::string name, type;
  BufferRole role = BufferRole::Temporary;
  int64_t offset = 0, bytes = 0;
  int first = 0, last = 0;  ///< first and last launch of its lifetime, numbered across all phases
};

struct Explanation {
  std::string model, part, device;
  std::vector<ExplainedLaunch> launches;  ///< of all phases, in order
  std::map<std::string, size_t> numbers;  ///< of every launch by name, including those that keep() dropped
  std::set<std::string> with_anchor;      ///< launches that have one
  std::vector<ExplainedBuffer> buffers;
  Rate rate = Rate::Step;  ///< of the most frequent phase, which the counts and bytes describe
  PlanCounts counts;
  int kernels = 0;  ///< of these launches
  int64_t fused_bytes = 0, unfused_bytes = 0;
  double flops = 0, seconds = 0;  ///< seconds: 0 if not timed
  MemoryPlan memory;
  std::optional<Roofline> roofline;  ///< of the device, if launches were timed
  int64_t peak_bytes() const { return memory.total(); }
};

/// What runs revealed about a launch.
struct Measurement {
  double seconds = 0;
  std::string how;  ///< Kernel::describe
};
using Measurements = std::map<std::string, Measurement>;  ///< by launch name

/// How many kernels a run of a launch puts on its stream, by the launch's name.
using KernelCounts = std::map<std::string, int>;
KernelCounts kernels_of(const PlanKernels& made);

/// Explains a plan. `unfused_bytes`: what the plan of --no-fusion moves. `launched`: a launch missing there counts as
/// one kernel.
Explanation explain(const Plan& plan, const MemoryPlan& memory, int64_t unfused_bytes,
                    const Measurements& measured = {}, const KernelCounts& launched = {});

enum class LaunchOrder : uint8_t { Plan, Time, Bytes };
/// Which launches to show; on request sorted by time or bytes, largest first.
struct LaunchChoice {
  std::string only;  ///< part of a name, or a pattern with * ? [..] for a whole name; empty: all
  LaunchOrder order = LaunchOrder::Plan;
};
/// True if `only`, as above, selects the launch of this name.
bool asks_for(const std::string& only, const std::string& name);
/// Drops the other launches; counts, bytes and memory remain those of the plan.
void keep(Explanation& e, const LaunchChoice& choice);

/// The time that the launch's bytes or its arithmetic take at the device's peaks, whichever is longer, as a fraction of
/// the measured time; 0 for a launch that was not timed or counts its keys. May exceed 1 if operands are in a cache.
double roofline_share(const ExplainedLaunch& l, const Roofline& peak);

std::string explanation_text(const Explanation& e);

/// "1.2 GB", "340 kB": decimal units.
std::string bytes_text(double bytes);
/// "340 MFLOP", "1.2 TFLOP".
std::string flops_text(double flops);
/// "1 launch", "2 launches".
std::string launches_text(int64_t count);
/// "1 kernel", "2 kernels".
std::string kernels_text(int64_t count);
/// "41.2 us", "1.30 ms", "2.1 s".
std::string seconds_text(double seconds);

}  // namespace tenon
