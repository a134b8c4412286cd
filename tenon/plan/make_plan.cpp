// From a model's DAG to a plan: rewrites, phases by rate, partition, memory.
#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/plan/partition.h"
#include "tenon/plan/plan.h"

namespace tenon {
namespace {

// Products of weights take time at load and save a launch in every step: worth it if a launch costs this many bytes.
constexpr int64_t kDearLaunch = int64_t{1} << 20;

// Weights are packed for the launch that reads them. Packing can reduce their rows (to quantise them), but not through
// a view: a value seen through one is stored instead, for all its readers, as is what must be in memory anyway.
bool is_packed(const Expr& operand) {
  if (operand.is<nodes::Materialize>()) return false;
  Expr base = operand;
  while (base->family() == Family::View && base->in.size() == 1) base = base->in[0];
  return of_weights_only(operand) && (base == operand || !reduces_rows(base));
}

// What each slower phase must leave in memory: values read by a faster phase, looking through views.
std::map<Rate, std::vector<Expr>> values_by_phase(std::span<const Expr> roots, bool hoist) {
  std::map<Rate, std::vector<Expr>> out;
  std::unordered_set<const Node*> taken;
  const auto want = [&](const Expr& root) {
    walk_below({root}, [&](const Expr& e) {
      if (e->family() == Family::Leaf || !taken.insert(e.get()).second) return false;
      if (e->family() != Family::View) out[e->rate].push_back(e);
      return e->family() == Family::View;
    });
  };
  for (const Expr& e : topological(roots)) {
    if (!hoist) break;
    for (size_t i = 0; i < e->in.size(); ++i) {
      const bool weight = e->family() == Family::Anchor && is_packed(e->in[i]);
      if (e->in[i]->rate < e->rate && !weight) want(e->in[i]);
    }
  }
  for (const Expr& r : roots)
    if (taken.insert(r.get()).second || r->family() == Family::View || r->family() == Family::Leaf)
      out[hoist ? r->rate : Rate::Step].push_back(r);
  for (auto& [rate, values] : out) std::ranges::sort(values, {}, [](const Expr& e) { return e->id; });
  return out;
}

void add_input_buffers(Plan& plan, std::span<const Expr> roots, bool outside) {
  for (const Expr& e : topological(roots)) {
    if (!is_memory_leaf(e) || e.is<nodes::Param>()) continue;
    const BufferRole role = e.is<nodes::State>() ? BufferRole::State : BufferRole::Input;
    plan.buffers.push_back({e->attrs.text, e.dtype(), e.shape(), role, e->rate, -1, 0});
    plan.buffers.back().outside = outside && !e.is<nodes::ScalarInput>();
  }
}

// Backends sum over at least one element, so sums over none cannot run. Adding up bytes must not overflow, nor after
// passes that add nodes.
void check_sizes(const std::vector<Expr>& roots, const std::string& plan_name) {
  int64_t bytes = 0;
  for (const Expr& e : topological(roots)) {
    bytes += bytes_of(e.shape(), e.dtype());
    TENON_CHECK(Memory, bytes < int64_t{1} << 60, plan_name) << "its tensors have more than 2^60 bytes in all";
    if ((e->family() != Family::Anchor && e->family() != Family::Reduce) || e.shape().numel() == 0) continue;
    for (const Expr& x : e->in)
      TENON_CHECK(Usage, x.shape().numel() > 0, std::string(e->name()))
          << "sums over an axis without elements: its operand is " << x.shape().str();
  }
}

}  // namespace

Plan make_plan(std::span<const Result> results, const PlanOptions& options) {
  TENON_CHECK(Usage, !results.empty(), options.name) << "a plan needs a result";
  std::vector<Expr> roots;
  const auto none = std::ranges::find(results, Expr(), &Result::value);
  TENON_CHECK(Usage, none == results.end(), options.name) << "result '" << none->name << "' is empty";
  for (const Result& r : results) roots.push_back(r.value);
  Graph& g = roots[0].graph();
  check_sizes(roots, options.name);
  Plan plan;
  plan.name = options.name;
  plan.precision = options.precision;
  plan.graph = std::make_shared<Graph>();
  add_input_buffers(plan, roots, options.outside);
  roots = fold_literals(g, roots);
  const bool rewrite = options.fusion && !options.anchors_alone;
  const bool products = options.target.launch_bytes >= kDearLaunch && !options.precision.quantizes();
  if (options.fold_scales && rewrite && products) roots = fold_products(g, roots);
  if (options.fold_scales && rewrite)
    roots = fold_scales(g, roots, options.precision.follows(PrecisionPolicy::Rule::F16));
  if (options.merge_siblings && rewrite) roots = merge_sibling_linears(g, roots);
  roots = set_precision(g, roots, options.precision, options.copies_weights);
  roots = take_apart(g, roots, options.target);
  if (rewrite) roots = join_branches(g, roots, options.target);

  std::unordered_map<const Node*, std::string> names;
  for (size_t i = 0; i < roots.size(); ++i) {
    while (names.contains(roots[i].get()))
      roots[i] = make_node<nodes::Materialize>({roots[i]});  // a copy of an equal one
    names.emplace(roots[i].get(), results[i].name);
    TENON_CHECK(Usage, !is_update(roots[i]) || results[i].name == state_of(roots[i])->attrs.text, plan.name)
        << "result '" << results[i].name << "' is an update of the state '" << state_of(roots[i])->attrs.text
        << "' and must have its name";
  }
  const Users users(roots);
  Partitioner partitioner(plan, users, options);
  std::map<Rate, std::vector<Expr>> values = values_by_phase(roots, options.hoist && options.fusion);
  for (Rate rate : kRates)
    if (!values[rate].empty()) partitioner.run(rate, values[rate], names);
  partitioner.place_neighbours();
  for (Buffer& b : plan.buffers) b.outside = b.outside || (options.outside && b.role == BufferRole::Output);
  find_stored(plan);
  find_settled(plan);
  lay_out_memory(plan);
  const std::string hazard = state_hazard(plan);
  TENON_CHECK(Internal, hazard.empty(), plan.name) << hazard;
  return plan;
}

}  // namespace tenon
