// What an anchor's launch absorbs. If not all users of a stored value can be absorbed, those that are stored anyway
// still are: the launch that has their operand in registers writes them. A value that its only reader can compute from
// fewer bytes is left to that reader.
#include <algorithm>

#include "tenon/expr/ops.h"
#include "tenon/kernels/view_facts.h"
#include "tenon/plan/partition.h"

namespace tenon {
namespace {

// How many values after a launch's results are examined.
constexpr size_t kLookedAt = 64;

}  // namespace

// True if only maths reads `e` and, as far as can be seen, in a single launch after the region's: it has one reader, or
// none of its readers waits for another anchor.
bool Partitioner::passes_to_maths(const Expr& e, const Region& region) const {
  const std::vector<Expr>& users = users_.of(e);
  const auto to_come = [&](const Expr& x) {
    return !in_memory(x) && !region.contains(x.get()) && x->family() != Family::Leaf;
  };
  const auto is_awaited = [&](const Expr& x) { return to_come(x) && (x->family() == Family::Anchor || is_update(x)); };
  const auto waits = [&](const Expr& u) { return any_below({u}, is_awaited, to_come); };
  return !wanted_.contains(e.get()) && !users.empty() && std::ranges::all_of(users, [&](const Expr& u) {
    if (region.contains(u.get())) return true;
    if (u->family() == Family::View) return passes_to_maths(u, region);
    const bool reduces = is_row_reduction(u) || is_statistic(u);
    return (u->family() == Family::Pointwise || reduces) && (users.size() == 1 || !waits(u));
  });
}

// Leaves the end of the region to its readers if that moves fewer bytes, e.g. if they can all read one narrow value
// instead of everything computed from it.
void Partitioner::leave_to_readers(Region& region) {
  const std::vector<Expr> results = frontier(region);
  const auto bytes = [&](const std::vector<Expr>& stored) {
    int64_t out = bytes_read(stored, [this](const Expr& e) { return counts_as_memory(e); });
    const auto is_stored = [&](const Expr& e) { return std::ranges::find(stored, e) != stored.end(); };
    std::vector<Expr> computed;
    for (const Expr& e : stored) out += bytes_of(e.shape(), e.dtype());
    for (const Expr& e : results) is_stored(e) ? void(out += bytes_of(e.shape(), e.dtype())) : computed.push_back(e);
    return out + bytes_read(computed, [&](const Expr& e) { return counts_as_memory(e) || is_stored(e); });
  };
  std::vector<Expr> order(region.begin(), region.end());
  std::ranges::sort(order, {}, [](const Expr& e) { return e->id; });
  int64_t least = bytes(results);
  Region best;
  for (const Expr& v : order) {
    if (v->family() != Family::Pointwise) continue;
    Region behind{v.get()}, smaller = region;
    bool may = true;
    for (const Expr& e : order) {
      if (e == v || std::ranges::none_of(e->in, [&](const Expr& x) { return behind.contains(x.get()); })) continue;
      behind.insert(e.get());
      smaller.erase(e.get());
      may = may && (!leaves(e, region) || passes_to_maths(e, region));
    }
    if (!may || smaller.size() == region.size()) continue;
    const int64_t moved = bytes(frontier(smaller));
    if (moved >= least) continue;
    // It may read reductions, which will be stored once the region is known.
    const size_t before = assumed_.size();
    assume_stored(frontier(smaller), true);
    const bool runs = attempt(frontier(smaller))->launch.form != nullptr;
    while (assumed_.size() > before) forget_last_assumption();
    if (!runs) continue;
    least = moved;
    best = std::move(smaller);
  }
  if (!best.empty()) region = std::move(best);
}

void Partitioner::absorb_stored(Region& region) {
  for (const Expr& v : maths_behind(region)) {
    Region larger = region;
    if (!add_path(v, larger) || behind_boundary(v, region) || !stored_anyway(v, region)) continue;
    std::vector<Expr> before = frontier(region);
    before.push_back(v);
    const std::vector<Expr> values = frontier(larger);
    const auto known = [&](const Expr& e) { return std::ranges::find(before, e) != before.end(); };
    if (std::ranges::all_of(values, known) && attempt(values)->launch.form) region = std::move(larger);
  }
}

// Pointwise values computed from results of the region, in order.
std::vector<Expr> Partitioner::maths_behind(const Region& region) const {
  std::vector<Expr> out, stack = frontier(region);
  Region seen;
  while (!stack.empty() && seen.size() < kLookedAt) {
    const Expr e = stack.back();
    stack.pop_back();
    for (const Expr& u : users_.of(e)) {
      const bool maths = u->family() == Family::Pointwise || u->family() == Family::View;
      if (!maths || region.contains(u.get()) || in_memory(u) || !seen.insert(u.get()).second) continue;
      stack.push_back(u);
      if (u->family() == Family::Pointwise) out.push_back(u);
    }
  }
  std::ranges::sort(out, {}, [](const Expr& e) { return e->id; });
  return out;
}

// Adds `v` and the path from the region to it, if the launch can compute all of that.
bool Partitioner::add_path(const Expr& v, Region& region) const {
  if (region.contains(v.get()) || (v->family() != Family::Pointwise && v->family() != Family::View)) return false;
  for (const Expr& e : std::vector<Expr>(v->in.begin(), v->in.end())) {
    if (region.contains(e.get()) || available(e, region)) continue;
    if (e->family() == Family::Leaf || !add_path(e, region)) return false;
  }
  if (!refusal_of(v, region).empty()) return false;
  region.insert(v.get());
  return true;
}

// True if a launch that computes `v` would also compute something that must be in memory first.
bool Partitioner::behind_boundary(const Expr& v, const Region& region) const {
  const auto is_not_stored = [&](const Expr& e) { return !in_memory(e) && is_boundary(e); };
  return any_below(v->in, is_not_stored, [&](const Expr& e) { return !in_memory(e) && !region.contains(e.get()); });
}

// True if `v` is a result, or an operand that its reader's kernel cannot compute from what the region stores.
bool Partitioner::stored_anyway(const Expr& v, const Region& region) {
  if (wanted_.contains(v.get())) return !is_boundary(v) || !region.contains(v->in[0].get());
  if (!target_.reads) return false;
  const std::vector<Expr> results = frontier(region);
  for (const Expr& r : results) buffer_of_.emplace(r.get(), "behind." + std::to_string(r->id));
  trials_.clear();
  bool found = false;
  walk({v}, [&](const Expr& e) -> std::span<const Expr> {
    if (found || (e != v && (e->family() != Family::View || view_facts(e).joins))) return {};
    for (const Expr& u : users_.of(e)) {
      if (u->family() != Family::Anchor || emitted_anchor_.contains(u.get())) continue;
      if (!std::ranges::all_of(u->in, [&](const Expr& x) { return available(x, {}); })) continue;
      const TrialPtr t = attempt({u});
      for (size_t i = 0; t->launch.form && i < u->in.size(); ++i)
        found = found || (u->in[i] == e && !target_.reads(*t->launch.form, i));
    }
    return users_.of(e);
  });
  for (const Expr& r : results) buffer_of_.erase(r.get());
  trials_.clear();
  return found;
}

}  // namespace tenon
