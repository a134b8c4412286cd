#include "tests/planned/check.h"
#include "tenon/explain/parse_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <sstream>

#include "tenon/core/compare.h"
#include "tenon/core/error.h"
#include "tenon/explain/own_buffers.h"
#include "tenon/explain/plan_diff.h"
#include "tenon/explain/rounding_noise.h"
#include "tenon/expr/node_type.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/expr/state.h"
#include "tenon/kernels/form.h"
#include "tenon/oracle/oracle.h"
#include "tenon/runtime/executable.h"

namespace tenon::planned {
namespace {

using Tensors = std::map<std::string, HostTensor>;
using Values = std::map<std::string, std::vector<double>>;

Plan planned(const Program& program, const PlanOptions& options) { return make_plan(program.results, options); }

// Expressions whose casts, and those of the constants they are made of, round nothing.
class Unrounded {
 public:
  Expr of(const Expr& e) {
    return rebuild(
        graph_, e, [this](const Expr& node, std::span<const Expr> in) { return of(node, in); }, memo_);
  }

 private:
  Expr of(const Expr& e, std::span<const Expr> in) {
    if (e->type->round && is_float(*e->attrs.dtype)) return graph_.make(without_rounding(*e->type), in, e->attrs);
    if (e.is<nodes::Linear>() && arithmetic_of(e) == DType::I8) return linear(in[0], in[1]);  // it rounds operands
    const Expr computed = e.is<nodes::Param>() ? computation_of(graph_, e->attrs.text) : Expr();
    return computed ? graph_.make(without_rounding(*find_node_type("cast")), std::array{of(computed)},
                                  Attrs{.dtype = e.dtype()})
                    : Expr();
  }
  static const NodeType& without_rounding(const NodeType& type) {
    static std::map<std::string_view, NodeType> types;
    const auto [it, added] = types.emplace(type.name, type);
    if (added) {
      it->second.name = type.name == "cast" ? "unrounded cast" : "unrounded round";
      it->second.round = nullptr;
    }
    return it->second;
  }

  Graph graph_;
  Memo memo_;
};

using Rewrite = std::function<Expr(const Expr&)>;
Expr as_written(const Expr& e) { return e; }

// The plan's buffers, computed launch by launch in fp64.
Values interpret(const Plan& plan, const Tensors& tensors, const Rewrite& rewrite) {
  Values values;
  for (const auto& [name, t] : tensors) values[name] = t.values();
  for (const Phase& p : plan.phases)
    for (const Launch& l : p.launches) {
      Oracle oracle([&](const Expr& leaf) { return values.at(leaf->attrs.text); });
      std::vector<std::vector<double>> made;
      for (const Output& o : l.outputs) made.push_back(oracle.eval(rewrite(o.value)));
      for (size_t i = 0; i < made.size(); ++i) values[l.outputs[i].buffer] = std::move(made[i]);
    }
  return values;
}

bool rounds(const Program& program) {
  for (const Expr& e : topological(program.roots())) {
    if ((e.is<nodes::Param>() || e->type->round) && e.dtype() != DType::F32) return true;
    if (e.is<nodes::Linear>() && arithmetic_of(e) == DType::I8) return true;  // it rounds operands
  }
  return false;
}

// Products that replace attention's gradients round weights to the type of their other operand; the anchors do not.
bool rounds_weights(const Program& program) {
  return std::ranges::any_of(topological(program.roots()), [](const Expr& e) {
    return is_attention_gradient(e) && arithmetic_of_operands(e) != DType::F32;
  });
}

// Of a - b, where both are finite.
double rms_apart(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0;
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
    squares += (a[i] - b[i]) * (a[i] - b[i]);
    ++count;
  }
  return std::sqrt(squares / static_cast<double>(std::max<size_t>(count, 1)));
}

std::string differ(const std::vector<double>& got, const std::vector<double>& want) {
  const Tolerance close{1e-7 * largest_magnitude(want), 1e-7};
  const Comparison c = compare(got, want, close, NaN::MayBeExpected);
  return c.agrees() ? std::string() : c.text();
}

// A plan whose folds, joined branches or products round otherwise than its program. A fold moves the rounding of
// weights and removes that of a sum, as a joined branch does; what follows may amplify either. So both must mean the
// same with no rounding at all, and with it, the plan may be as far from that as the program is, or one whose weights
// are off by a rounding.
class RoundedOtherwise {
 public:
  RoundedOtherwise(const Program& program, const Plan& plan, const Tensors& tensors)
      : planned_(interpret(plan, tensors, [this](const Expr& e) { return rewrite_.of(e); })),
        exact_(tensors),
        off_([&](const Expr& leaf) {
          std::vector<double> values = tensors.at(leaf->attrs.text).values();
          const double step = leaf.is<nodes::Param>() ? 2 * unit_roundoff(leaf.dtype()) : 0;
          for (size_t i = 0; i < values.size(); ++i) values[i] *= 1 + (i * 7 % 3 == 0 ? step : -step);
          return values;
        }) {
    for (const Result& r : program.results) unrounded_[r.name] = rewrite_.of(r.value);
  }

  std::string differ(const std::string& result, const std::vector<double>& got, const std::vector<double>& want) {
    const std::vector<double> exact = exact_.eval(unrounded_.at(result));
    if (std::string wrong = planned::differ(planned_.at(result), exact); !wrong.empty())
      return "without rounding: " + wrong;
    const double own = rms_apart(want, exact) + rms_apart(off_.eval(unrounded_.at(result)), exact);
    const double size = rms_apart(exact, std::vector<double>(exact.size()));
    const double apart = rms_apart(got, exact), allowed = 0.1 * size + kMargin * own;
    if (apart <= allowed) return {};
    return "rounding moves it by " + std::to_string(apart) + " rms, expected at most " + std::to_string(allowed);
  }

 private:
  static constexpr double kMargin = 4;

  Unrounded rewrite_;
  Values planned_;
  Oracle exact_, off_;
  std::map<std::string, Expr> unrounded_;
};

std::string differ(const Program& program, const Plan& plan, const Tensors& tensors, const PlanOptions& options) {
  const Values values = interpret(plan, tensors, as_written);
  Oracle oracle(tensors);
  const bool rewrites = options.fusion && !options.anchors_alone && rounds(program);
  const bool rounds_otherwise = rounds_weights(program) || (rewrites && (options.fold_scales || options.target.runs));
  std::optional<RoundedOtherwise> otherwise;
  for (const Result& r : program.results) {
    const std::vector<double> want = oracle.eval(r.value), &got = values.at(r.name);
    std::string wrong = differ(got, want);
    if (!wrong.empty() && rounds_otherwise) {
      if (!otherwise) otherwise.emplace(program, plan, tensors);
      wrong = otherwise->differ(r.name, got, want);
    }
    if (!wrong.empty()) return r.name + ": " + wrong;
  }
  return {};
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
    if (b.role != BufferRole::Input && b.role != BufferRole::State) continue;
    const HostTensor& t = tensors.at(b.name);
    run.set(b.name, HostView{t.dtype, t.shape, t.data.data()});
  }
}

// What a run read and wrote. Programs write no row of a state twice, so each written row is known from the end.
class Memory {
 public:
  Memory(const Executable& run, const Tensors& tensors) : run_(run), tensors_(tensors) {
    Oracle oracle([this](const Expr& leaf) { return leaf_value(leaf); });
    for (const Phase& p : run.plan().phases)
      for (const Launch& l : p.launches)
        for (const Output& o : l.outputs)
          if (is_update(o.value)) written_[o.buffer].push_back(oracle.eval(o.value->in[1]));
  }

  std::vector<double> leaf_value(const Expr& leaf) const {
    if (leaf.is<nodes::Param>()) return tensors_.at(leaf->attrs.text).values();
    return leaf.is<nodes::State>() ? state(leaf) : last(leaf->attrs.text);
  }
  /// Empty if every row of a state that no update writes is as it was before the run.
  std::string kept_rows() const {
    for (const Buffer& b : run_.plan().buffers) {
      if (b.role != BufferRole::State) continue;
      std::vector<double> want = tensors_.at(b.name).values();
      const std::vector<double> end = last(b.name);
      if (const auto updates = written_.find(b.name); updates != written_.end())
        for (const std::vector<double>& rows : updates->second)
          copy_rows(rows, b.shape.numel() / b.shape[0], end, want);
      const Comparison c = compare(end, want, Tolerance{}, NaN::MayBeExpected);
      if (!c.agrees()) return "state " + b.name + ", in rows that nothing writes: " + c.text();
    }
    return {};
  }
  std::vector<double> output(const Output& o) const { return is_update(o.value) ? state(o.value) : last(o.buffer); }

 private:
  std::vector<double> last(const std::string& buffer) const {
    const std::vector<float> stored = run_.get(buffer);
    return {stored.begin(), stored.end()};
  }
  std::vector<double> state(const Expr& value) const {
    const std::string& name = state_of(value)->attrs.text;
    std::vector<double> out = tensors_.at(name).values();
    const std::vector<double> end = last(name);
    const int64_t row = value.shape().numel() / value.shape()[0];
    for (size_t i = 0; i < static_cast<size_t>(version_of(value)); ++i)
      copy_rows(written_.at(name).at(i), row, end, out);
    return out;
  }
  static void copy_rows(const std::vector<double>& rows, int64_t length, const std::vector<double>& from,
                        std::vector<double>& to) {
    for (const double at : rows) {
      const auto first = static_cast<ptrdiff_t>(at) * length;
      std::copy_n(from.begin() + first, length, to.begin() + first);
    }
  }

  const Executable& run_;
  const Tensors& tensors_;
  std::map<std::string, std::vector<std::vector<double>>> written_;  ///< rows of each update of each state
};

std::string check_launch(const Launch& launch, const Memory& memory) {
  const Oracle::Leaves leaves = [&](const Expr& leaf) { return memory.leaf_value(leaf); };
  Oracle oracle(leaves);
  const std::vector<std::vector<double>> noise = rounding_noise(launch, leaves);
  for (size_t i = 0; i < launch.outputs.size(); ++i) {
    const Output& o = launch.outputs[i];
    Tolerance t = Rounding{.stored = o.value.dtype(), .size = 0}.tolerance();
    t.absolute += (noise[i].empty() ? 0 : kNoiseMargin * std::ranges::max(noise[i])) + 1e-30;
    std::vector<double> got = memory.output(o);
    const std::vector<double>& want = oracle.eval(o.value);
    for (size_t k = 0; is_statistic(o.value) && k < got.size(); ++k)  // of moments, which an infinity makes NaN
      if (std::isnan(got[k]) && std::isinf(want[k])) got[k] = want[k];
    const Comparison c = compare(got, want, t, NaN::MayBeExpected);
    if (!c.agrees()) return "launch " + launch.name + " (" + launch.skeleton + "), " + o.buffer + ": " + c.text();
  }
  return {};
}

std::string same_bits(const Executable& a, const Executable& b, const char* when) {
  for (const Buffer& buffer : a.plan().buffers) {
    if (buffer.role != BufferRole::Output && buffer.role != BufferRole::State) continue;
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
  const Memory memory(apart, tensors);
  if (std::string wrong = memory.kept_rows(); !wrong.empty()) return wrong;
  for (const Phase& p : plan.phases)
    for (const Launch& l : p.launches)
      if (const std::string wrong = check_launch(l, memory); !wrong.empty()) return wrong;
  Executable together(plan, device.backend, weights, outside(plan, again));
  set_inputs(together, tensors);
  together.run_all();
  if (const std::string wrong = same_bits(apart, together, "in the arena"); !wrong.empty()) return wrong;
  set_inputs(together, tensors);
  together.run(plan.phases.back().rate);
  return same_bits(apart, together, "in the arena, the second time");
}

}  // namespace

std::string text_of(const PlanOptions& o) {
  std::ostringstream out;
  out << "fusion=" << o.fusion << " hoist=" << o.hoist << " merge_siblings=" << o.merge_siblings
      << " outside=" << o.outside << " anchors_alone=" << o.anchors_alone << " fold_scales=" << o.fold_scales
      << " launch_bytes=" << o.target.launch_bytes << " reads_views_only=" << static_cast<bool>(o.target.reads)
      << " runs_all=" << static_cast<bool>(o.target.runs) << " writes=" << static_cast<bool>(o.target.writes);
  return out.str();
}

Finding check_meaning(const Program& program, const PlanOptions& options) try {
  const Plan plan = planned(program, options);
  if (std::string wrong = parses_back(plan); !wrong.empty()) return {wrong};
  const Tensors tensors = leaf_tensors(program.roots());
  if (std::string wrong = differ(program, plan, tensors, options); !wrong.empty())
    return {"the plan means something else: " + wrong};
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
