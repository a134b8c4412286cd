#include "tenon/plan/partition.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/plan/stages.h"

namespace tenon {
namespace {

// An anchor's trials are requested repeatedly: alone and with what it absorbs, before and after storing its operands.
constexpr size_t kRemembered = 4;

// These nodes are dropped within a launch.
bool is_order_only(const Expr& e) { return e.is<nodes::Materialize>() || e.is<nodes::Barrier>(); }

}  // namespace

void Partitioner::run(Rate rate, const std::vector<Expr>& roots,
                      const std::unordered_map<const Node*, std::string>& names) {
  plan_.phases.push_back({rate, {}});
  phase_ = &plan_.phases.back();
  trials_.clear();
  for (const Expr& r : roots) wanted_.insert(r.get());
  for (const Buffer& b : plan_.buffers) given_.insert(b.name);
  for (const auto& [node, name] : names) given_.insert(result_name_[node] = name);
  const Stages stages = order_of_stages(roots);
  const std::vector<Expr>& all = stages.values;
  const auto stage = [&](const Expr& e) { return stages.of.at(e.get()); };
  std::vector<Expr> due;
  for (const Expr& e : all) {
    if (is_update(e)) updates_.push_back(e);
    const Expr pinned = e.is<nodes::Barrier>() ? e->in[0] : e;
    if (!is_boundary(e) || !wanted_.insert(pinned.get()).second) continue;
    if (stage(pinned) < stage(all.back())) due.push_back(pinned);
  }
  due.insert(due.end(), roots.begin(), roots.end());
  std::ranges::stable_sort(due, {}, stage);
  for (size_t i = 0; i < all.size(); ++i) {
    const Expr& e = all[i];
    if (i > 0 && stage(all[i - 1]) < stage(e)) {  // what belongs to earlier stages must be in memory
      const auto later = std::ranges::find_if(due, [&](const Expr& x) { return stage(x) >= stage(e); });
      emit_roots({due.begin(), later});
      due.erase(due.begin(), later);
    }
    if (e->family() == Family::Leaf || in_memory(e) || stored_below(e)) continue;
    if (stage(e) >= 0 && e->family() != Family::Anchor && std::erase(due, e) > 0)
      emit_roots({e});  // now: what it reads behind a barrier may be there for it alone
    else if (is_update(e))
      may_replace(e) ? emit_update(e) : void();  // otherwise when something reads it
    else
      emit_node(e);
  }
  emit_roots(due);
}

// Emits the launch of an anchor or, without fusion, of any node; other nodes go where they are read.
void Partitioner::emit_node(const Expr& e) {
  if (!options_.fusion && (e->rate != Rate::Constant || phase_->rate == Rate::Constant))
    emit_unfused(e);
  else if (e->family() == Family::Anchor)
    emit_anchor(e);
}

// A tensor already in memory needs no boundary, and constants are stored in whatever form their kernels want.
bool Partitioner::is_boundary(const Expr& e) {
  return is_order_only(e) && !is_memory_leaf(e->in[0]) && !is_update(e->in[0]) && e->rate != Rate::Constant;
}

// True if `e` pins a value that is already stored, as it is; `e` then shares its buffer.
bool Partitioner::stored_below(const Expr& e) {
  if (!is_boundary(e) || result_name_.contains(e.get())) return false;
  const auto it = buffer_of_.find(e->in[0].get());
  if (it == buffer_of_.end() || stored_as_.contains(e->in[0].get())) return false;
  const std::string buffer = it->second;
  buffer_of_[e.get()] = buffer;
  return true;
}

Partitioner::TrialPtr Partitioner::attempt(const std::vector<Expr>& values) const {
  for (const TrialPtr& t : trials_)
    if (t->values == values) return t;
  if (trials_.size() == kRemembered) trials_.erase(trials_.begin());
  return trials_.emplace_back(trial_of(values));
}

// The value read from memory, undoing the rearrangement it is stored in; empty if it is not in memory.
Expr Partitioner::leaf_of(Graph& g, const Expr& e) const {
  const auto it = buffer_of_.find(e.get());
  if (it == buffer_of_.end()) return {};
  if (is_update(e)) return state_leaf(g, e);
  const auto as = stored_as_.find(e.get());
  const Expr stored = as == stored_as_.end() ? e : as->second;
  Expr out = input(g, it->second, stored.dtype(), stored.shape(), stored->rate);
  for (Expr view = stored; view != e; view = view->in[0]) out = view->type->vjp(view, out)[0];  // its inverse
  return out;
}

Partitioner::TrialPtr Partitioner::trial_of(const std::vector<Expr>& values) const {
  const auto trial = std::make_shared<Trial>();
  Trial& t = *trial;
  t.values = values;
  Memo memo;
  Graph& g = *t.graph;
  walk_below(values, [&](const Expr& e) {
    const Expr leaf = leaf_of(g, e);
    if (leaf) memo.emplace(e.get(), leaf);
    return !leaf;
  });
  // A boundary between launches means nothing within one.
  const Replace inside = [](const Expr& e, std::span<const Expr> in) { return is_order_only(e) ? in[0] : Expr(); };
  const std::vector<Expr> made = rebuild(g, values, inside, memo);
  for (const auto& [node, local] : memo) {
    Expr& source = t.source[local.get()];
    if (!source || source->id < node->id) source = Expr(node);  // prefer a boundary to the value it pins
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const auto it = result_name_.find(values[i].get());
    std::string name = "t" + std::to_string(next_buffer_ + static_cast<int>(i));
    while (given_.contains(name)) name += '_';
    if (it != result_name_.end()) name = it->second;
    if (is_update(values[i])) name = state_of(values[i])->attrs.text;
    t.launch.outputs.push_back({std::move(name), made[i]});
  }
  t.refusal = choose_skeleton(t.launch, t.graph);
  return trial;
}

// Stores whatever blocks the launch, one value at a time.
Partitioner::TrialPtr Partitioner::attempt_or_materialize(const std::vector<Expr>& values) {
  for (;;) {
    TrialPtr t = attempt(values);
    if (t->launch.form) return t;
    const Expr blocker = t->refusal.blocker;
    const auto it = blocker ? t->source.find(blocker.get()) : t->source.end();
    const bool progress = it != t->source.end() && !in_memory(it->second) && it->second->family() != Family::Leaf &&
                          std::find(values.begin(), values.end(), it->second) == values.end();
    TENON_CHECK(Usage, progress, plan_.name)
        << "no skeleton runs " << describe(values[0]) << " " << values[0].shape().str() << ": " << t->refusal.why;
    emit_plain(it->second);
  }
}

// Stores the reductions of other tensors' rows that an anchor's epilogue reads.
Partitioner::TrialPtr Partitioner::attempt_with_reductions(const Region& region) {
  assume_stored(frontier(region), true);
  if (std::vector<Expr> forced = end_assumptions(); !forced.empty()) emit_stored(region, std::move(forced));
  return attempt(frontier(region));
}

void Partitioner::emit_unfused(const Expr& e) {
  emit_updates(e->in);
  if (in_memory(e)) return;
  std::vector<Expr> values{e};
  if (e->family() == Family::Anchor) values = frontier(with_companions(main_anchor(e)));
  commit(*attempt_or_materialize(values), values, {});
}

void Partitioner::emit_plain(const Expr& e) {
  if (is_update(e)) return emit_update(e);
  std::vector<Expr> values{e};
  if (const Expr own = statistic_below(e); own && options_.fusion && !in_memory(own))
    for (const Expr& u : users_.of(own->in[0]))
      if (u != own && is_statistic(u) && !in_memory(u) && !in_memory(as_result(u))) values.push_back(as_result(u));
  commit(*attempt_or_materialize(values), values, {});
}

// Emits values that are wanted and not in memory yet.
void Partitioner::emit_roots(const std::vector<Expr>& roots) {
  emit_updates(roots);
  std::vector<Expr> values;
  for (const Expr& r : roots)
    if ((!in_memory(r) || result_name_.contains(r.get())) && !buffer_of_.contains(r.get())) values.push_back(r);
  // Sums that results need first are stored by a common launch, like the results.
  for (const Expr& r : values)
    options_.fusion ? assume_stored({r}, true) : commit(*attempt_or_materialize({r}), {r}, {});
  for (const Expr& e : end_assumptions())
    if (std::ranges::find(values, e) == values.end()) values.push_back(e);
  if (options_.fusion) emit_stored({}, std::move(values));
}

// For a companion, the anchor it belongs to, whether or not anything reads its first result.
Expr Partitioner::main_anchor(const Expr& anchor) const {
  if (anchor->type->companion_of.empty()) return anchor;
  return anchor.graph().make(*find_node_type(anchor->type->companion_of), anchor->in, anchor->attrs);
}

Partitioner::Region Partitioner::with_companions(const Expr& anchor) const {
  Region out{anchor.get()};
  for (const Expr& u : users_.of(anchor->in[0]))
    if (is_companion(u, anchor)) out.insert(u.get());
  return out;
}

void Partitioner::emit_anchor(const Expr& any) {
  const Expr anchor = main_anchor(any);
  if (emitted_anchor_.contains(anchor.get())) return;
  emit_updates(std::array{anchor});
  if (emitted_anchor_.contains(anchor.get())) return;  // it read a value that one of them replaces
  if (options_.anchors_alone) return emit_alone(anchor);
  store_in_front(anchor);
  attempt_or_materialize({anchor});
  Region region = with_companions(anchor);
  std::map<uint32_t, std::string> refused;
  // Most launches absorb everything they may: ask the skeleton once, at the end. If it refuses, ask it at every step.
  grow(anchor, region, refused, false);
  if (!attempt_with_reductions(region)->launch.form) {
    region = with_companions(anchor);
    refused.clear();
    grow(anchor, region, refused, true);
  }
  absorb_stored(region);
  std::vector<Expr> values = frontier(region);
  add_statistics(values);
  std::vector<Expr> stored = values;
  if (multiplies_heads(anchor))
    std::ranges::transform(values, stored.begin(), [&](const Expr& v) { return as_multiplied(v); });
  if (stored != values && !attempt(stored)->launch.form) stored = values;
  const TrialPtr t = attempt_or_materialize(stored);
  for (const Node* n : region)
    if (n->family() == Family::Anchor) emitted_anchor_.insert(n);
  commit(*t, stored, kept_apart(values, region, refused));
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] != stored[i]) {
      buffer_of_[values[i].get()] = buffer_of_.at(stored[i].get());
      stored_as_[values[i].get()] = stored[i];
    }
}

// The rearrangement of a value that a product reads as rows, if there is one, else the value. Other readers undo it.
Expr Partitioner::as_multiplied(const Expr& value) const {
  if (wanted_.contains(value.get())) return value;
  for (const Expr& first : users_.of(value))
    for (Expr e = first; e.is<nodes::Permute>() || e.is<nodes::Reshape>(); e = users_.of(e)[0]) {
      const std::vector<Expr>& users = users_.of(e);
      const auto multiplies = [&](const Expr& u) { return multiplies_rows(u) && u->in[0] == e; };
      if (in_memory(e) || users.empty()) break;
      if (std::ranges::any_of(users, multiplies)) return e;
    }
  return value;
}

// ---- growing an anchor's launch into its epilogue ----

void Partitioner::grow(const Expr& anchor, Region& region, std::map<uint32_t, std::string>& refused, bool ask_each) {
  std::vector<Expr> order{anchor};
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t i = 0; i < order.size(); ++i) {
      const Expr x = order[i];
      if (!leaves(x, region) || wanted_.contains(x.get())) continue;
      if (absorb_users(x, region, refused, ask_each)) {
        for (const Expr& u : users_.of(x))
          if (region.contains(u.get()) && std::find(order.begin(), order.end(), u) == order.end()) order.push_back(u);
        progress = true;
      }
    }
  }
  Region smaller = region;
  if (!multiplies_heads(anchor)) drop_trailing_views(smaller, order);  // otherwise its reader wants whole rows
  if (smaller.size() < region.size() && attempt(frontier(smaller))->launch.form) region = std::move(smaller);
  leave_to_readers(region);
}

// Absorbs all users of x or none: reading back a value that must be stored anyway is cheaper than storing two values,
// except for users that are stored anyway too (absorb.cpp).
bool Partitioner::absorb_users(const Expr& x, Region& region, std::map<uint32_t, std::string>& refused, bool ask_each) {
  if (is_update(x)) return false;  // its readers read memory
  std::vector<Expr> joining;
  for (const Expr& u : users_.of(x)) {
    if (region.contains(u.get())) continue;
    if (const std::string why = refusal_of(u, region); !why.empty()) {
      refused[u->id] = why;
      return false;
    }
    joining.push_back(u);
  }
  if (joining.empty()) return false;
  Region larger = region;
  for (const Expr& u : joining) larger.insert(u.get());
  if (ask_each) {
    const TrialPtr t = attempt_with_reductions(larger);
    if (!t->launch.form) {
      for (const Expr& u : joining) refused[u->id] = t->refusal.why;
      return false;
    }
  }
  region = std::move(larger);
  return true;
}

std::string Partitioner::refusal_of(const Expr& user, const Region& region) const {
  const Family family = user->family();
  if (family == Family::Anchor) return "a separate anchor: it reads this as an operand";
  if (family == Family::Reduce) return std::string(user->name()) + " needs more of the result than a tile holds";
  if (is_update(user) && !may_replace(user))
    return "waits: the old value of '" + state_of(user)->attrs.text + "' has not been read yet";
  if (in_memory(user)) return "already computed";
  if (user.is<nodes::Barrier>()) return "after a barrier";
  if (user->rate > phase_->rate) return "changes every " + std::string(name_of(user->rate));
  for (const Expr& x : user->in)
    if (!available(x, region)) return "waits: " + describe(x) + " is not computed before this launch";
  return {};
}

// True if the launch may read e: it is in the region, or computable from memory without another anchor.
bool Partitioner::available(const Expr& e, const Region& region) const {
  if (region.contains(e.get())) return true;
  const auto to_come = [&](const Expr& x) { return !in_memory(x) && x->family() != Family::Leaf; };
  const auto is_awaited = [&](const Expr& x) {
    return to_come(x) && (region.contains(x.get()) || x->family() == Family::Anchor || is_update(x) || is_statistic(x));
  };
  return !any_below({e}, is_awaited, to_come);
}

// True for an anchor that only its companion is read of, too: its launch computes both.
bool Partitioner::leaves(const Expr& e, const Region& region) const {
  if (wanted_.contains(e.get()) || users_.of(e).empty()) return true;
  return std::ranges::any_of(users_.of(e), [&](const Expr& u) { return !region.contains(u.get()); });
}

std::vector<Expr> Partitioner::frontier(const Region& region) const {
  std::vector<Expr> values;
  for (const Node* n : region)
    if (leaves(Expr(n), region)) values.emplace_back(n);
  std::sort(values.begin(), values.end(), [](const Expr& a, const Expr& b) { return a->id < b->id; });
  return values;
}

// A view at the end of an epilogue saves nothing: the reader's hole can look through it.
void Partitioner::drop_trailing_views(Region& region, const std::vector<Expr>& order) const {
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Expr& e = *it;
    if (e->family() != Family::View || wanted_.contains(e.get()) || !region.contains(e.get())) continue;
    if (std::ranges::none_of(users_.of(e), [&](const Expr& u) { return region.contains(u.get()); }))
      region.erase(e.get());
  }
}

// What is wanted of a statistic with no other readers: a reshape of it, or the statistic itself.
Expr Partitioner::as_result(Expr statistic) const {
  Expr e = statistic;
  while (!wanted_.contains(e.get()) && users_.of(e).size() == 1 && users_.of(e)[0].is<nodes::Reshape>())
    e = users_.of(e)[0];
  return wanted_.contains(e.get()) ? e : statistic;
}

// The launch that stores a result also yields its statistics over the image.
void Partitioner::add_statistics(std::vector<Expr>& values) const {
  std::vector<Expr> statistics;
  for (const Expr& x : values) {
    std::vector<Expr> seen{x};
    for (const Expr& u : users_.of(x))
      if (u.is<nodes::Reshape>()) seen.push_back(u);
    for (const Expr& v : seen)
      for (const Expr& u : users_.of(v))
        if (is_statistic(u) && !in_memory(u) && u->rate == phase_->rate) statistics.push_back(as_result(u));
  }
  for (const Expr& u : statistics) {
    values.push_back(u);
    if (!attempt(values)->launch.form) values.pop_back();
  }
}

// ---- results ----

// Lets weights be computed from parameters alone, rather than from values stored for other readers, such as their
// scales: they are then packed once. That concerns all that the launch reads of them, also in its epilogue.
void Partitioner::keep_weights_whole(Launch& launch, const Trial& trial) const {
  const Expr anchor = anchor_of(launch);
  if (!anchor) return;
  Memo memo, own;
  for (const Expr& x : std::span(anchor->in).first(static_cast<size_t>(anchor->type->factors))) {
    const Expr source = of_weights_only(x) ? Expr() : trial.source.at(x.get());
    if (source && !in_memory(source) && of_weights_only(source))
      memo.emplace(x.get(), rebuild(*trial.graph, source, own));
  }
  if (memo.empty()) return;
  Launch made = launch;
  for (Output& o : made.outputs) o.value = rebuild(*trial.graph, o.value, memo);
  choose_skeleton(made, trial.graph);
  if (made.form && made.skeleton == launch.skeleton) launch = std::move(made);
}

void Partitioner::commit(const Trial& trial, const std::vector<Expr>& values, std::vector<Neighbour> apart) {
  trials_.clear();
  Launch launch = trial.launch;
  if (phase_->rate != Rate::Constant) keep_weights_whole(launch, trial);
  Memo memo;
  for (Output& o : launch.outputs) o.value = rebuild(*plan_.graph, o.value, memo);
  launch.name = launch_name(launch);
  remember_places(launch, values);
  take_in_updates(launch);
  for (Neighbour& n : apart) {
    n.phase = plan_.phases.size() - 1;
    n.launch = phase_->launches.size();
    neighbours_.push_back(std::move(n));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    Output& o = launch.outputs[i];
    const bool result = result_name_.contains(values[i].get());
    if (const auto why = why_stored_.find(values[i].get()); why != why_stored_.end()) o.why = why->second;
    buffer_of_[values[i].get()] = o.buffer;
    launch_of_buffer_[o.buffer] = launch.name;
    if (is_update(values[i])) continue;
    if (phase_->rate == Rate::Constant) weights_of_buffer_[o.buffer] = weights_below(values[i]);
    plan_.buffers.push_back({o.buffer, o.value.dtype(), o.value.shape(),
                             result ? BufferRole::Output : BufferRole::Temporary, phase_->rate, -1, 0});
  }
  next_buffer_ += static_cast<int>(values.size());
  phase_->launches.push_back(std::move(launch));
}

std::vector<Partitioner::Neighbour> Partitioner::kept_apart(const std::vector<Expr>& values, const Region& region,
                                                            const std::map<uint32_t, std::string>& refused) const {
  std::vector<Neighbour> out;
  for (const Expr& x : values)
    for (const Expr& u : users_.of(x)) {
      if (region.contains(u.get()) || std::find(values.begin(), values.end(), u) != values.end()) continue;
      std::string why = refusal_of(u, region);
      Apart kind = u->family() == Family::Reduce ? Apart::Refused : Apart::Fused;
      if (const auto it = refused.find(u->id); why.empty() && it != refused.end()) {
        why = it->second;  // the skeleton's
        kind = Apart::Refused;
      }
      if (u->family() == Family::View) why = "a view: its reader reads through it";
      if (why.empty()) why = "the value has other readers, so it is stored once for all";
      out.push_back({{describe(u), why, kind}, u, x});
    }
  return out;
}

std::string Partitioner::describe(const Expr& e) const {
  if (e->family() == Family::Anchor)
    for (const Expr& leaf : topological(std::array{e->in[1]}))
      if (leaf.is<nodes::Param>() && !is_computed(leaf)) return std::string(e->name()) + " '" + leaf->attrs.text + "'";
  return std::string(e->name()) + " " + e.shape().str();
}

}  // namespace tenon
