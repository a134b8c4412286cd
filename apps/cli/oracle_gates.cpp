// Checks every launch against the oracle, on the values that it actually read.
#include <cmath>
#include <cstring>

#include "apps/cli/gates.h"
#include "apps/cli/sample_inputs.h"
#include "tenon/core/compare.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/explain/explanation.h"
#include "tenon/explain/own_buffers.h"
#include "tenon/explain/rounding_noise.h"
#include "tenon/expr/ops.h"
#include "tenon/oracle/oracle.h"
#include "tenon/runtime/executable.h"

namespace tenon::cli {
namespace {

int64_t reduction_length(const Launch& launch) {
  const Expr anchor = anchor_of(launch);
  int64_t length = 1;
  for (const Output& o : launch.outputs)
    for (const Expr& e : topological(std::array{o.value}))
      if (e->family() == Family::Reduce)
        length = std::max(length, e->in[0].shape().numel() / std::max<int64_t>(e.shape().numel(), 1));
  if (!anchor) return length;
  const Shape& w = anchor->in[1].shape();
  int64_t depth = w[-1];
  if (anchor.is<nodes::Conv2d>()) depth = w[1] * w[2] * w[3];
  if (multiplies_heads(anchor)) depth = std::max(anchor->in[0].shape()[2], w[2]);
  return std::max(length, depth);
}

// What a kernel rounds that its expression does not: attention's weights and a fast convolution's filters, to the type
// of an operand in memory. A product adds in f32, and its operands are exact, or rounded by a node of the launch.
double arithmetic_roundoff(const Launch& launch) {
  double u = unit_roundoff(DType::F32);
  const Expr anchor = anchor_of(launch);
  if (!anchor || !(multiplies_heads(anchor) || anchor.is<nodes::Conv2d>())) return u;
  for (const Expr& x : anchor->in)
    for (const Expr& e : topological(std::array{x}))
      if (is_memory_leaf(e) && is_float(e.dtype())) u = std::max(u, unit_roundoff(e.dtype()));
  return u;
}

// If a result is computed from values that the launch itself rounds (queries that are normalised, rounded and rotated),
// the last bit of f32 decides which way: a difference of a whole unit in the last place.
double inner_roundoff(const Expr& result) {
  double u = 0;
  for (const Expr& e : topological(std::array{result}))
    if (e->type->round && e != result) u = std::max(u, 2 * unit_roundoff(e.dtype()));
  return u;
}

// Errors of n rounded terms add up like sqrt(n) f32 roundings. Six standard deviations, doubled for
// amplification by the epilogue.
double tolerance_of(const Launch& launch, const Expr& result) {
  const double n = static_cast<double>(reduction_length(launch));
  return 12 * (arithmetic_roundoff(launch) + std::sqrt(n) * unit_roundoff(DType::F32)) +
         2 * unit_roundoff(result.dtype()) + inner_roundoff(result);
}

// Error of the sine or cosine of a large number from rounding its argument to f32, doubled.
double trigonometric_roundoff(const Launch& launch, Oracle& oracle) {
  double largest = 0;
  for (const Output& o : launch.outputs)
    for (const Expr& e : topological(std::array{o.value}))
      if (e.is<nodes::Sin>() || e.is<nodes::Cos>())
        for (const double v : oracle.eval(e->in[0])) largest = std::max(largest, std::abs(v));
  return 2 * largest * unit_roundoff(DType::F32);
}

double rms_of(const std::vector<double>& values) {
  double squares = 0;
  for (double v : values) squares += v * v;
  return std::sqrt(squares / static_cast<double>(std::max<size_t>(values.size(), 1))) + 1e-30;
}

std::vector<double> leaf_values(const Expr& leaf, const Executable& run, const WeightSource& weights) {
  if (!leaf.is<nodes::Param>()) {
    const std::vector<float> stored = run.get(leaf->attrs.text);
    return {stored.begin(), stored.end()};
  }
  const HostView view = weights.find(leaf->attrs.text);
  std::vector<double> values(static_cast<size_t>(leaf.shape().numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = round_to(leaf.dtype(), load_element(view.dtype, view.data, static_cast<int64_t>(i)));
  return values;
}

Expr behind_views(Expr e) {
  while (e->family() == Family::View) e = e->in[0];
  return e;
}

// The scales of quantised rows, which are quotients rounded to e4m3; null for other values.
Expr scales_of(const Expr& value) {
  const Expr rounded = behind_views(value);
  if (!rounded.is<nodes::Cast>() || rounded.dtype() != DType::E4M3 || !rounded->in[0].is<nodes::Div>()) return {};
  return behind_views(rounded->in[0]->in[1]);
}

// The three gates for an output of e4m3 rows; its scales are checked too if the launch stores them.
QuantizedRowsComparison check_quantized(const Launch& launch, const Output& rows, const std::vector<double>& want,
                                        const Executable& run, Oracle& oracle) {
  QuantizedRowsComparison c;
  const std::vector<float> got = run.get(rows.buffer);
  for (size_t i = 0; i < want.size(); ++i) c.add(got.at(i), want[i]);
  const Expr scales = scales_of(rows.value);
  for (const Output& o : launch.outputs) {
    if (behind_views(o.value) != scales) continue;
    const std::vector<double> expected = oracle.eval(o.value);
    const std::vector<float> stored = run.get(o.buffer);
    for (size_t i = 0; i < expected.size(); ++i) c.add_scale(stored.at(i), expected[i]);
  }
  return c;
}

// The largest effect of noise on an element's row; for a convolution also on nearby pixels, because fast convolutions
// compute tiles of pixels together.
std::vector<double> noise_around(const Launch& launch, const Output& o, const std::vector<double>& noise) {
  constexpr int64_t kTile = 6;
  const Shape& s = o.value.shape();
  if (s.rank() == 0 || s[-1] == 0) return noise;
  std::vector<double> rows(noise.size() / static_cast<size_t>(s[-1]));
  for (size_t i = 0; i < noise.size(); ++i) {
    double& row = rows[i / static_cast<size_t>(s[-1])];
    row = std::max(row, noise[i]);
  }
  const Expr anchor = anchor_of(launch);
  if (anchor && anchor.is<nodes::Conv2d>() && s == anchor.shape())
    for (const int axis : {1, 2}) {
      const int64_t step = axis == 1 ? s[2] : 1;
      const std::vector<double> from = rows;
      for (int64_t i = 0; i < std::ssize(rows); ++i) {
        const int64_t at = i / step % s[axis];
        for (int64_t k = std::max<int64_t>(at - kTile, 0); k <= std::min(at + kTile, s[axis] - 1); ++k)
          rows[static_cast<size_t>(i)] =
              std::max(rows[static_cast<size_t>(i)], from[static_cast<size_t>(i + (k - at) * step)]);
      }
    }
  std::vector<double> out(noise.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = rows[i / static_cast<size_t>(s[-1])];
  return out;
}

GateCase check_launch(const Launch& launch, const Executable& run, const WeightSource& weights) {
  GateCase out;
  out.name = launch.name;
  out.verdict = Verdict::Passed;
  const Oracle::Leaves leaves = [&](const Expr& leaf) { return leaf_values(leaf, run, weights); };
  Oracle oracle(leaves);
  std::vector<std::vector<double>> noise;  // per output, if needed
  const double trigonometric = trigonometric_roundoff(launch, oracle);
  double share = -1;
  for (size_t k = 0; k < launch.outputs.size(); ++k) {
    const Output& o = launch.outputs[k];
    const std::vector<double> want = oracle.eval(o.value);
    const std::vector<float> got = run.get(o.buffer);
    const double rms = rms_of(want), tolerance = tolerance_of(launch, o.value) + trigonometric;
    // Elements larger than the rms may differ proportionally.
    const auto allowed = [&](size_t, double w) { return tolerance * std::max(rms, std::abs(w)); };
    tenon::Comparison c = tenon::compare(got, want, allowed);
    if (!c.agrees()) {  // for cancelling sums or few large operands, rounding has a larger effect than the rms suggests
      if (noise.empty()) noise = rounding_noise(launch, leaves);
      const std::vector<double> around = noise_around(launch, o, noise[k]);
      c = tenon::compare(got, want, [&](size_t i, double w) { return allowed(i, w) + kNoiseMargin * around[i]; });
    }
    if (!c.agrees()) out.fail(o.buffer + ": " + c.text());
    if (scales_of(o.value)) {
      const QuantizedRowsComparison rows = check_quantized(launch, o, want, run, oracle);
      out.quantized += (out.quantized.empty() ? "" : "; ") + o.buffer + ": " + rows.text();
      if (!rows.agrees()) out.fail(o.buffer + ": " + rows.text());
    }
    if (c.worst_share() <= share) continue;
    share = c.worst_share();
    out.tolerance = tolerance;
    out.error = share * tolerance;
  }
  return out;
}

}  // namespace

int oracle_gates(const std::string& part, const Plan& plan, const std::shared_ptr<WeightStore>& store,
                 const WeightSource& weights, const std::string& only, const OnCase& done) {
  const OwnBuffers memory(plan, *store->backend());
  Executable run(plan, store, memory.all());
  set_sample_inputs(run);
  run.run_all();
  int checked = 0;
  for (const Phase& phase : plan.phases)
    for (const Launch& launch : phase.launches) {
      if (!asks_for(only, launch.name)) continue;
      check_stop();
      ++checked;
      GateCase result = check_launch(launch, run, weights);
      result.name = "oracle " + part + " " + result.name;
      done(result);
    }
  return checked;
}

}  // namespace tenon::cli
