// Scheduling of states. A state holds one value at a time: readers of the value that an update replaces run before it,
// readers of the updated value after it.
#include <algorithm>
#include <iterator>
#include <map>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/plan/partition.h"

namespace tenon {

// True if `e` is still to be computed, for more than this update.
bool Partitioner::is_awaited(const Expr& e, const Expr& by_others_than) const {
  bool awaited = false;
  walk({e}, [&](const Expr& x) -> std::span<const Expr> {
    if (awaited || x == by_others_than || in_memory(x) || emitted_anchor_.contains(x.get())) return {};
    awaited = wanted_.contains(x.get()) || x->family() == Family::Anchor || is_update(x);
    return users_.of(x);
  });
  return awaited;
}

// Readers of the value that an update replaces, other than the update, that are not computed yet. A view of it, or a
// boundary behind it, counts by its own readers.
std::vector<Expr> Partitioner::waiting_readers(const Expr& update) const {
  std::vector<Expr> out;
  walk({update->in[0]}, [&](const Expr& e) -> std::span<const Expr> {
    TENON_CHECK(Usage, e == update || !is_update(e) || e->in[0] != update->in[0], plan_.name)
        << "two updates of the same value of the state '" << state_of(e)->attrs.text << "'";
    const bool passes = e->family() == Family::View || e.is<nodes::Materialize>() || e.is<nodes::Barrier>();
    if (e == update->in[0] || (passes && !wanted_.contains(e.get()))) return users_.of(e);
    if (e != update && is_awaited(e, update)) out.push_back(e);
    return {};
  });
  std::ranges::sort(out, {}, [](const Expr& e) { return e->id; });
  return out;
}

bool Partitioner::may_replace(const Expr& update) const {
  return in_memory(update->in[0]) && waiting_readers(update).empty();
}

// Puts `e` in memory, or in an anchor's launch, with everything it needs.
void Partitioner::emit_whole(const Expr& e) {
  for (const Expr& x : topological(std::array{e})) {
    if (x->family() == Family::Leaf || in_memory(x) || emitted_anchor_.contains(x.get())) continue;
    is_update(x) ? emit_update(x) : emit_node(x);
  }
  if (!in_memory(e) && !emitted_anchor_.contains(e.get())) emit_plain(e);
}

// Emits the updates that `roots` are or read.
void Partitioner::emit_updates(std::span<const Expr> roots) {
  for (const Expr& e : updates_.empty() ? std::vector<Expr>() : topological(roots))
    if (is_update(e) && !in_memory(e)) emit_update(e);
}

// The launch also writes updates of other states that are ready, if one loop can serve them.
void Partitioner::emit_update(const Expr& update) {
  emit_updates(update->in);
  if (in_memory(update)) return;
  TENON_CHECK(Usage, begun_.insert(update.get()).second, plan_.name)
      << "reads the old value of the state '" << state_of(update)->attrs.text << "' after it was replaced";
  for (const Expr& reader : waiting_readers(update)) emit_whole(reader);
  if (in_memory(update)) return;
  std::vector<Expr> values{update};
  for (const Expr& other : options_.fusion && !options_.anchors_alone ? updates_ : std::vector<Expr>()) {
    const auto ready = [&](const Expr& x) { return available(x, {}); };
    if (other == update || in_memory(other) || !std::ranges::all_of(other->in, ready) || !may_replace(other)) continue;
    values.push_back(other);
    if (!attempt(values)->launch.form) values.pop_back();
  }
  commit(*attempt_or_materialize(values), values, {});
}

// If an anchor reads rows that the previous launch wrote into states, and the target's kernel can write these itself,
// the two launches are merged.
void Partitioner::take_in_updates(Launch& launch) {
  if (!options_.fusion || !target_.writes || phase_->launches.empty() || !anchor_of(launch)) return;
  const Launch front = phase_->launches.back();
  if (anchor_of(front)) return;
  Memo memo;
  for (const Output& o : front.outputs) {
    if (!is_update(o.value)) return;
    memo.emplace(state_leaf(*plan_.graph, o.value).get(), o.value);
  }
  Launch all = launch;
  for (Output& o : all.outputs) o.value = rebuild(*plan_.graph, o.value, memo);
  std::ranges::copy(front.outputs, std::back_inserter(all.outputs));
  choose_skeleton(all, plan_.graph);
  if (!all.form || all.form->updates.size() != front.outputs.size() || !target_.writes(*all.form)) return;
  launch = std::move(all);
  phase_->launches.pop_back();
  for (const Output& o : front.outputs) launch_of_buffer_[o.buffer] = launch.name;
  for (auto& [node, places] : places_)
    for (Place& p : places)
      if (p.launch == front.name) p.launch = launch.name;
}

std::string state_hazard(const Plan& plan) {
  std::map<std::string, int64_t> updates;
  const auto times = [](int64_t n) { return n == 1 ? std::string("1 update") : std::to_string(n) + " updates"; };
  for (const Phase& p : plan.phases)
    for (const Launch& l : p.launches) {
      std::vector<Expr> values;
      for (const Output& o : l.outputs) values.push_back(o.value);
      for (const Expr& e : below(values)) {
        if (!e.is<nodes::State>()) continue;
        const std::string& name = e->attrs.text;
        if (const int64_t now = updates[name]; version_of(e) != now)
          return "launch '" + l.name + "' reads the state '" + name + "' after " + times(version_of(e)) +
                 ", but it has had " + times(now);
        if (std::ranges::any_of(l.outputs, [&](const Output& o) { return is_update(o.value) && o.buffer == name; }))
          return "launch '" + l.name + "' reads the state '" + name + "' while it writes it";
      }
      for (const Output& o : l.outputs) {
        if (!is_update(o.value)) continue;
        const std::string& name = state_of(o.value)->attrs.text;
        if (name != o.buffer) return "launch '" + l.name + "' writes '" + name + "' into '" + o.buffer + "'";
        if (version_of(o.value) != ++updates[name])
          return "launch '" + l.name + "' is update " + std::to_string(version_of(o.value)) + " of the state '" + name +
                 "', but runs as update " + std::to_string(updates[name]);
      }
    }
  return {};
}

}  // namespace tenon
