#include "tenon/explain/roofline.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "tenon/expr/ops.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/executable.h"
#include "tenon/runtime/host_weights.h"

namespace tenon {
namespace {

constexpr int kRuns = 5;
// A run that takes less is timed at twice the size, up to the most.
constexpr double kLongCopy = 5e-3, kLongProduct = 20e-3;
constexpr int64_t kLeastElements = int64_t{1} << 24, kMostElements = int64_t{1} << 27;
constexpr int64_t kLeastSide = 1024, kMostSide = 4096;

// Seconds of the fastest of a few runs.
double best_time(const Expr& value, const std::vector<float>& x, const HostWeights& weights,
                 const std::shared_ptr<Backend>& backend) {
  PlanOptions options;
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

// Numbers like those of a network: zeros would let a processor run faster than it does at work.
std::vector<float> numbers(int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  uint32_t state = 1;
  for (float& v : out) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) * 0x1p-23f - 1;
  }
  return out;
}

double copy_time(int64_t elements, const std::shared_ptr<Backend>& backend) {
  Graph g;
  return best_time(-input(g, "x", DType::F32, {elements / 1024, 1024}), numbers(elements), HostWeights(), backend);
}

double product_time(int64_t side, DType dtype, const std::shared_ptr<Backend>& backend) {
  Graph g;
  const Expr x = input(g, "x", dtype, {side, side}), w = param(g, "w", DType::F32, {side, side});
  const std::vector<float> values = numbers(side * side);
  const HostWeights weights({{"w", HostView{DType::F32, {side, side}, values.data()}}});
  return best_time(cast(linear(x, cast(w, dtype)), dtype), values, weights, backend);
}

}  // namespace

Roofline measure_roofline(const std::shared_ptr<Backend>& backend, DType dtype) {
  Roofline out;
  const int64_t room = backend->memory_available() / 4;
  int64_t elements = kLeastElements;
  const auto bytes = [&] { return 2 * size_of(DType::F32) * elements; };  // read and written
  double seconds = copy_time(elements, backend);
  while (seconds < kLongCopy && elements < kMostElements && 2 * bytes() < room) {
    elements *= 2;
    seconds = copy_time(elements, backend);
  }
  out.bytes_per_second = static_cast<double>(bytes()) / seconds;
  int64_t side = kLeastSide;
  seconds = product_time(side, dtype, backend);
  while (seconds < kLongProduct && side < kMostSide && 4 * 3 * side * side * size_of(dtype) < room) {
    side *= 2;
    seconds = product_time(side, dtype, backend);
  }
  const auto length = static_cast<double>(side);
  out.flops_per_second = 2 * length * length * length / seconds;
  out.how = "a copy of " + std::to_string(bytes() / 2 >> 20) + " MiB, a product of " + std::to_string(side) +
            "^2 matrices in " + std::string(name_of(dtype));
  return out;
}

}  // namespace tenon
