// What a plan says when it is explained: plain data, made once; here as text.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tenon/explain/readable.h"
#include "tenon/explain/roofline.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/executable.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon {

struct ExplainedHole {
  std::string name;
  ReadableText value;
  std::string type;  ///< "bf16[2,64,64,320]"
};

struct ExplainedLaunch {
  std::string name, skeleton, anchor;
  size_t number = 0;  ///< in the whole plan, all phases in order
  Rate rate = Rate::Step;
  std::vector<ExplainedHole> lets;                          ///< small values made first
  std::vector<ExplainedHole> holes;                         ///< what fills the inputs of the anchor
  std::vector<ExplainedHole> sinks;                         ///< what is written; `name` is the buffer
  std::vector<std::pair<std::string, std::string>> stored;  ///< buffers and what decided that they are
  std::vector<KeptApart> apart;
  std::vector<std::string> reads, writes;  ///< buffers
  int64_t bytes = 0, unfused_bytes = 0;
  double flops = 0;
  std::optional<DType> arithmetic;  ///< of the anchor, where it has one
  int kernels = 1;                  ///< that a run of it puts on the device
  std::optional<double> seconds;
  std::string how;  ///< how the backend runs it
};

struct ExplainedBuffer {
  std::string name, type;
  BufferRole role = BufferRole::Temporary;
  int64_t offset = 0, bytes = 0;
  int first = 0, last = 0;  ///< launches between which it lives, counted over all phases
};

struct Explanation {
  std::string model, part, device;
  std::vector<ExplainedLaunch> launches;  ///< of all phases, in order
  std::map<std::string, size_t> numbers;  ///< of every launch by name, also where keep() left it out
  std::set<std::string> with_anchor;      ///< launches that have one
  std::vector<ExplainedBuffer> buffers;
  Rate rate = Rate::Step;  ///< of the phase that runs most often: what the counts and bytes are of
  PlanCounts counts;
  int kernels = 0;  ///< of these launches
  int64_t fused_bytes = 0, unfused_bytes = 0;
  double flops = 0, seconds = 0;  ///< seconds: 0 if it was not timed
  MemoryPlan memory;
  std::optional<Roofline> roofline;  ///< of the device, where launches were timed
  int64_t peak_bytes() const { return memory.total(); }
};

/// What runs showed of a launch.
struct Measurement {
  double seconds = 0;
  std::string how;  ///< Kernel::describe
};
using Measurements = std::map<std::string, Measurement>;  ///< by launch name

/// Takes a plan apart. `unfused_bytes`: what the plan of --no-fusion moves. `launched`: PlanKernels::launched; a launch
/// that is not there is one kernel.
Explanation explain(const Plan& plan, const MemoryPlan& memory, int64_t unfused_bytes,
                    const Measurements& measured = {}, const KernelCounts& launched = {});

enum class LaunchOrder : uint8_t { Plan, Time, Bytes };
/// Which launches to show, and the longest or largest first if asked.
struct LaunchChoice {
  std::string only;  ///< a part of the name, or a pattern with * ? [..] for the whole of it; empty: all
  LaunchOrder order = LaunchOrder::Plan;
};
/// True for launches that `only` asks for by name, as above.
bool asks_for(const std::string& only, const std::string& name);
/// Leaves the other launches out; counts, bytes and memory stay those of the plan.
void keep(Explanation& e, const LaunchChoice& choice);

/// The time that the launch's bytes or its arithmetic take at the device's peaks, whichever is longer, as a part of the
/// time that it took; 0 for a launch that was not timed. May exceed 1 where the operands lie in a cache.
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
