#include "tenon/explain/roofline.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/executable.h"

namespace tenon {
namespace {

constexpr int kRuns = 5;
// Runs that take less are repeated at twice the size, up to a limit.
constexpr double kLongCopy = 5e-3, kLongProduct = 20e-3;
constexpr int64_t kMinElements = int64_t{1} << 24, kMaxElements = int64_t{1} << 27;
constexpr int64_t kMinSide = 1024, kMaxSide = 4096;

// The fastest of a few runs, in seconds.
double best_time(const Expr& value, const std::vector<float>& x, const HostWeights& weights,
                 const std::shared_ptr<Backend>& backend, PlanOptions options = {}) {
  options.name = "peak";
  options.hoist = false;
  options.target = backend->target();
  const Result result{"y", value};
  Executable executable(make_plan({&result, 1}, options), backend, weights);
  executable.set("x", x);
  executable.run_all();
  executable.time_launches(true);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    executable.run_all();
    double seconds = 0;
    for (const LaunchTime& t : executable.times()) seconds += t.seconds;
    best = std::min(best, seconds);
  }
  return best;
}

// Numbers like those of a network: with zeros a processor could run faster than in real use.
std::vector<float> numbers(int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  uint32_t state = 1;
  for (float& v : out) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) * 0x1p-23f - 1;
  }
  return out;
}

// The time to read `elements` f32, and to write as many if `copies`.
double memory_time(int64_t elements, bool copies, const std::shared_ptr<Backend>& backend) {
  constexpr int64_t kColumns = 1024;
  Graph g;
  const Expr x = input(g, "x", DType::F32, {elements / kColumns, kColumns});
  return best_time(copies ? -x : sum(x), numbers(elements), HostWeights(), backend);
}

double product_time(int64_t side, DType arithmetic, const std::shared_ptr<Backend>& backend) {
  Graph g;
  PlanOptions options;
  const bool blocks = arithmetic == DType::I8;  // quantised by the product itself
  if (blocks) options.precision.rule = PrecisionPolicy::Rule::I8Blocks;
  const DType operands = blocks ? DType::BF16 : arithmetic, result = size_of(operands) > 1 ? operands : DType::BF16;
  const Expr x = input(g, "x", operands, {side, side}), w = param(g, "w", DType::F32, {side, side});
  const std::vector<float> values = numbers(side * side);
  const HostWeights weights({{"w", HostView{DType::F32, {side, side}, values.data()}}});
  return best_time(cast(linear(x, cast(w, operands)), result), values, weights, backend, options);
}

void measure_memory(const std::shared_ptr<Backend>& backend, Roofline& peak) {
  int64_t elements = kMinElements;
  const auto bytes = [&] { return size_of(DType::F32) * elements; };
  double seconds = memory_time(elements, true, backend);
  while (seconds < kLongCopy && elements < kMaxElements && 4 * bytes() < backend->memory_available() / 4) {
    elements *= 2;
    seconds = memory_time(elements, true, backend);
  }
  peak.copied = static_cast<double>(2 * bytes()) / seconds;
  peak.read = static_cast<double>(bytes()) / memory_time(elements, false, backend);
  peak.how = "a copy and sums of " + std::to_string(bytes() >> 20) + " MiB";
}

void measure_product(DType arithmetic, const std::shared_ptr<Backend>& backend, Roofline& peak) {
  const int64_t room = backend->memory_available() / 4;
  int64_t side = kMinSide;
  double seconds = product_time(side, arithmetic, backend);
  while (seconds < kLongProduct && side < kMaxSide && 4 * 3 * side * side * size_of(arithmetic) < room) {
    side *= 2;
    seconds = product_time(side, arithmetic, backend);
  }
  const auto length = static_cast<double>(side);
  peak.operations[arithmetic] = 2 * length * length * length / seconds;
  peak.how += ", a product of " + std::to_string(side) + "^2 matrices in " + std::string(name_of(arithmetic));
}

}  // namespace

void measure_roofline(const Plan& plan, const std::shared_ptr<Backend>& backend, Roofline& peak) {
  if (peak.how.empty()) measure_memory(backend, peak);
  for (const Phase& p : plan.phases)
    for (const Launch& l : p.launches)
      if (const Expr anchor = anchor_of(l); anchor && !peak.operations.contains(*arithmetic_of(anchor)))
        measure_product(*arithmetic_of(anchor), backend, peak);
}

}  // namespace tenon
