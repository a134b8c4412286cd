#include "tests/planned/check.h"
#include "tenon/explain/parse_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "tenon/core/compare.h"
#include "tenon/core/error.h"
#include "tenon/explain/own_buffers.h"
#include "tenon/explain/plan_diff.h"
#include "tenon/explain/rounding_noise.h"
#include "tenon/expr/ops.h"
#include "tenon/oracle/oracle.h"
#include "tenon/runtime/executable.h"

namespace tenon::planned {
namespace {

using Tensors = std::map<std::string, HostTensor>;
using Values = std::map<std::string, std::vector<double>>;

Plan planned(const Program& program, const PlanOptions& options) { return make_plan(program.results, options); }

// The plan's buffers, computed launch by launch in fp64.
Values interpret(const Plan& plan, const Tensors& tensors) {
  Values values;
  for (const auto& [name, t] : tensors) values[name] = t.values();
  for (const Phase& p : plan.phases)
    for (const Launch& l : p.launches) {
      Oracle oracle([&](const Expr& leaf) { return values.at(leaf->attrs.text); });
      std::vector<std::vector<double>> made;
      for (const Output& o : l.outputs) made.push_back(oracle.eval(o.value));
      for (size_t i = 0; i < made.size(); ++i) values[l.outputs[i].buffer] = std::move(made[i]);
    }
  return values;
}

bool rounds(const Program& program) {
  for (const Expr& e : topological(program.roots()))
    if ((e.is<nodes::Param>() || e->type->round) && e.dtype() != DType::F32) return true;
  return false;
}

// Products that replace attention's gradients round weights to the type of their other operand; the anchors do not.
bool rounds_weights(const Program& program) {
  return std::ranges::any_of(topological(program.roots()), [](const Expr& e) {
    return is_attention_gradient(e) && arithmetic_of_operands(e) != DType::F32;
  });
}

double rms_of(const std::vector<double>& x) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  return std::sqrt(squares / static_cast<double>(std::max<size_t>(x.size(), 1)));
}

// A fold moves the rounding of weights and removes that of a sum. In this case, and when weights are rounded that the
// program's anchor does not round, the magnitude of differences is compared with that of the values.
std::string differ(const std::vector<double>& got, const std::vector<double>& want, bool nearly) {
  const double largest = largest_magnitude(want);
  const Comparison exact = compare(got, want, Tolerance{1e-7 * largest, 1e-7}, NaN::MayBeExpected);
  if (exact.agrees()) return {};
  if (nearly && got.size() == want.size()) {
    std::vector<double> difference(want);
    for (size_t i = 0; i < want.size(); ++i) difference[i] -= got[i];
    if (rms_of(difference) <= 0.1 * rms_of(want)) return {};
  }
  return exact.text();
}

std::string parses_back(const Plan& plan) {
  const std::string text = print_plan(plan), again = print_plan(parse_plan(text));
  return text == again ? std::string()
                       : "the plan prints, parses and prints otherwise:\n" + diff_plans(plan, parse_plan(text));
}

std::map<std::string, void*> outside(const Plan& plan, const OwnBuffers& own) {
  std::map<std::string, void*> out;
  for (const Buffer& b : plan.buffers)
    if (b.outside) out[b.name] = own.all().at(b.name);
  return out;
}

void set_inputs(Executable& run, const Tensors& tensors) {
  for (const Buffer& b : run.plan().buffers) {
    if (b.role != BufferRole::Input) continue;
    const HostTensor& t = tensors.at(b.name);
    run.set(b.name, HostView{t.dtype, t.shape, t.data.data()});
  }
}

std::string check_launch(const Launch& launch, const Executable& run, const Tensors& tensors) {
  const Oracle::Leaves leaves = [&](const Expr& leaf) {
    if (leaf.is<nodes::Param>()) return tensors.at(leaf->attrs.text).values();
    const std::vector<float> stored = run.get(leaf->attrs.text);
    return std::vector<double>(stored.begin(), stored.end());
  };
  Oracle oracle(leaves);
  const std::vector<std::vector<double>> noise = rounding_noise(launch, leaves);
  for (size_t i = 0; i < launch.outputs.size(); ++i) {
    const Output& o = launch.outputs[i];
    Tolerance t = Rounding{.stored = o.value.dtype(), .size = 0}.tolerance();
    t.absolute += (noise[i].empty() ? 0 : kNoiseMargin * std::ranges::max(noise[i])) + 1e-30;
    const Comparison c = compare(run.get(o.buffer), oracle.eval(o.value), t, NaN::MayBeExpected);
    if (!c.agrees()) return "launch " + launch.name + " (" + launch.skeleton + "), " + o.buffer + ": " + c.text();
  }
  return {};
}

std::string same_bits(const Executable& a, const Executable& b, const char* when) {
  for (const Buffer& buffer : a.plan().buffers) {
    if (buffer.role != BufferRole::Output) continue;
    const std::vector<float> x = a.get(buffer.name), y = b.get(buffer.name);
    for (size_t i = 0; i < x.size(); ++i)
      if (std::memcmp(&x[i], &y[i], sizeof(float)) != 0 && !(std::isnan(x[i]) && std::isnan(y[i])))
        return buffer.name + "[" + std::to_string(i) + "] is " + std::to_string(y[i]) + " " + when + ", and " +
               std::to_string(x[i]) + " with every buffer in memory of its own";
  }
  return {};
}

std::string run_checks(const Plan& plan, const Device& device, const Tensors& tensors) {
  HostWeights weights;
  for (const auto& [name, t] : tensors) weights.add(name, {t.dtype, t.shape, t.data.data()});
  const OwnBuffers own(plan, *device.backend), again(plan, *device.backend);
  Executable apart(plan, device.backend, weights, own.all());
  set_inputs(apart, tensors);
  apart.run_all();
  for (const Phase& p : plan.phases)
    for (const Launch& l : p.launches)
      if (const std::string wrong = check_launch(l, apart, tensors); !wrong.empty()) return wrong;
  Executable together(plan, device.backend, weights, outside(plan, again));
  set_inputs(together, tensors);
  together.run_all();
  if (const std::string wrong = same_bits(apart, together, "in the arena"); !wrong.empty()) return wrong;
  together.run(plan.phases.back().rate);
  return same_bits(apart, together, "in the arena, the second time");
}

}  // namespace

std::string text_of(const PlanOptions& o) {
  std::ostringstream out;
  out << "fusion=" << o.fusion << " hoist=" << o.hoist << " merge_siblings=" << o.merge_siblings
      << " outside=" << o.outside << " anchors_alone=" << o.anchors_alone << " fold_scales=" << o.fold_scales
      << " launch_bytes=" << o.target.launch_bytes << " reads_views_only=" << static_cast<bool>(o.target.reads);
  return out.str();
}

Finding check_meaning(const Program& program, const PlanOptions& options) try {
  const Plan plan = planned(program, options);
  if (std::string wrong = parses_back(plan); !wrong.empty()) return {wrong};
  const Tensors tensors = leaf_tensors(program.roots());
  const Values values = interpret(plan, tensors);
  Oracle oracle(tensors);
  const bool folds = options.fold_scales && options.fusion && !options.anchors_alone && rounds(program);
  for (const Result& r : program.results) {
    const std::string wrong = differ(values.at(r.name), oracle.eval(r.value), folds || rounds_weights(program));
    if (!wrong.empty()) return {"the plan means something else: " + r.name + ": " + wrong};
  }
  const std::shared_ptr<Backend> null = make_backend("null");
  const OwnBuffers own(plan, *null);
  Executable recorded(plan, null, HostWeights(), outside(plan, own));
  recorded.run_all();
  return {};
} catch (const std::exception& e) {
  return {std::string("planning: ") + e.what()};
}

Finding check_run(const Program& program, const PlanOptions& options, const Device& device) try {
  const std::string wrong = run_checks(planned(program, options), device, leaf_tensors(program.roots()));
  return {wrong.empty() ? wrong : device.name + ": " + wrong};
} catch (const std::exception& e) {
  return {device.name + ": " + e.what()};
}

}  // namespace tenon::planned
