// Which values between anchors are stored: those for which one write and one read move no more bytes than recomputing
// them in each reader. The readers of a launch are considered together, before it is made.
#include <algorithm>
#include <numeric>
#include <utility>

#include "tenon/expr/ops.h"
#include "tenon/kernels/view_facts.h"
#include "tenon/plan/partition.h"

namespace tenon {
namespace {

// How many results without an anchor may share a launch: a device holds all of them in registers.
constexpr size_t kResultsTogether = 8;
// How many values are considered together (the last ones): the number of trials grows with their square. Fewer where
// each trial examines many values.
constexpr size_t kCandidates = 32, kTried = 4096;
// How many launches are considered as readers, the nearest ones: beyond that, one more does not change the decision.
constexpr size_t kSites = 16;

bool earlier(const Expr& a, const Expr& b) { return a->id < b->id; }

int64_t own_bytes(const Expr& e) { return bytes_of(e.shape(), e.dtype()); }

std::string amount(int64_t bytes) {
  constexpr int64_t kMega = 1000000;
  return bytes < 10 * kMega ? std::to_string(bytes / 1000) + " kB" : std::to_string(bytes / kMega) + " MB";
}

// Vectors of values are kept sorted.
bool has(const std::vector<Expr>& values, const Expr& e) { return std::ranges::binary_search(values, e, earlier); }

std::vector<Expr> with(std::vector<Expr> values, const Expr& e) {
  values.insert(std::ranges::upper_bound(values, e, earlier), e);
  return values;
}

// True if one loop may serve both domains: they differ at most in the length of a row.
bool same_rows(Shape a, Shape b) {
  if (a.rank() != b.rank() || a.rank() == 0) return a == b;
  const bool one = a[-1] == b[-1] || a[-1] == 1 || b[-1] == 1;
  a[-1] = b[-1] = 1;
  return one && a == b;
}

// The tensor that views of a single tensor look at.
Expr below_views(Expr e) {
  while (e->family() == Family::View && !view_facts(e).joins) e = e->in[0];
  return e;
}

// The parts of a concatenation, if `hole` is one.
std::vector<Expr> parts_of(const Expr& hole) {
  const Expr joined = below_views(hole);
  std::vector<Expr> out;
  walk_below({joined}, [&](const Expr& e) {
    if (e.is<nodes::Concat>()) return true;
    if (e != joined) out.push_back(e);
    return false;
  });
  return out;
}

std::vector<Expr> without(std::vector<Expr> values, const Expr& e) {
  std::erase(values, e);
  return values;
}

}  // namespace

// Everything that is decided together.
struct Partitioner::Choosing {
  const Region& region;                         // the launch that is about to be made
  std::vector<Expr> cone;                       // candidates for storing and what they are computed from, sorted
  std::map<uint32_t, std::vector<Expr>> sites;  // launches needed in any case, and the values they read
  std::vector<Expr> stored;                     // sorted
  std::vector<Shape> domains = {};              // what launches iterate over
  std::unordered_map<const Node*, size_t> domain_of = {};  // which of them a launch of the value iterates over
};

// ---- what must be stored ----

void Partitioner::store_in_front(const Expr& anchor) {
  Region region = with_companions(anchor);
  std::map<uint32_t, std::string> refused;
  assume_stored({anchor}, false);
  assume_unreadable(anchor);
  grow(anchor, region, refused, false);
  assume_stored(frontier(region), true);
  assume_beside(region);
  emit_stored(region, end_assumptions());
}

// A branch runs before the layer it is added to, which reads the same rows: one launch must store them for both.
void Partitioner::assume_beside(const Region& region) {
  for (const Expr& result : frontier(region))
    for (const Expr& u : users_.of(result)) {
      const auto ready = [&](const Expr& x) { return x == result || available(x, {}); };
      if (!u.is<nodes::BranchedLinear>() || u->in[2] != result || !std::ranges::all_of(u->in, ready)) continue;
      buffer_of_[result.get()] = "%branch";
      trials_.clear();
      assume_unreadable(u);
      buffer_of_.erase(result.get());
      trials_.clear();
    }
}

// Assumes that everything that blocks a launch of these values is in memory.
void Partitioner::assume_stored(const std::vector<Expr>& values, bool reductions_only) {
  for (;;) {
    const TrialPtr t = attempt(values);
    const auto it = t->source.find(t->refusal.blocker.get());
    if (it == t->source.end() || (reductions_only && !is_row_reduction(it->second))) return;
    Expr e = below_views(it->second);
    if (!target_.reads || users_.of(e).size() < 2) e = it->second;  // else others read it; this one reads a view
    if (has(values, e) || !assume(e, t->refusal.why)) return;
  }
}

// For a row reduction, stores the last value that is computed from it alone: a scale rather than a maximum.
bool Partitioner::assume(Expr e, const std::string& why) {
  if (in_memory(e) || e->family() == Family::Leaf) return false;
  while (e.shape().rank() && e.shape()[-1] == 1 && !wanted_.contains(e.get()) && users_.of(e).size() == 1) {
    const Expr& u = users_.of(e)[0];
    const auto known = [&](const Expr& x) { return x == e || literal_of(x); };
    if (u->family() != Family::Pointwise || u.shape() != e.shape() || !std::ranges::all_of(u->in, known)) break;
    e = u;
  }
  buffer_of_[e.get()] = "%assumed." + std::to_string(assumed_.size());
  why_stored_.emplace(e.get(), why);
  assumed_.push_back(e);
  trials_.clear();
  return true;
}

std::vector<Expr> Partitioner::end_assumptions() {
  if (!assumed_.empty()) trials_.clear();
  for (const Expr& e : assumed_) buffer_of_.erase(e.get());
  return std::exchange(assumed_, {});
}

// Assumes in memory the operands that the target's kernel of the anchor cannot compute while loading, without the views
// on top if the kernel reads through them.
void Partitioner::assume_unreadable(const Expr& anchor) {
  if (!target_.reads) return;
  for (size_t i = 0; i < anchor->in.size(); ++i) {
    const Expr& hole = anchor->in[i];
    const auto unread = [&] {
      const TrialPtr t = attempt({anchor});
      return t->launch.form && !target_.reads(*t->launch.form, i);
    };
    if (hole->rate == Rate::Constant || !unread()) continue;
    const std::string why = std::string(anchor->name()) + " can read only stored tensors through its hole " +
                            std::string(skeleton(attempt({anchor})->launch.skeleton).holes[i]);
    const Expr e = below_views(hole);
    if (e->family() != Family::View && assume(e, why)) {
      if (!unread()) continue;
      forget_last_assumption();
    }
    size_t parts = 0;
    for (const Expr& part : parts_of(hole)) parts += part->family() == Family::View && assume(part, why);
    if (parts > 0 && !unread()) continue;
    for (; parts > 0; --parts) forget_last_assumption();
    assume(hole, why);
  }
}

void Partitioner::forget_last_assumption() {
  buffer_of_.erase(assumed_.back().get());
  why_stored_.erase(assumed_.back().get());
  assumed_.pop_back();
  trials_.clear();
}

// ---- what is cheaper to store ----

// Stores `forced`, and whatever else below the region and them saves bytes.
void Partitioner::emit_stored(const Region& region, std::vector<Expr> forced) {
  std::ranges::sort(forced, earlier);
  Choosing c{region, {}, {}, std::move(forced)};
  std::vector<Expr> roots = read_by(region);
  roots.insert(roots.end(), c.stored.begin(), c.stored.end());
  add_cone(c, roots);
  const auto memory = [this](const Expr& e) { return counts_as_memory(e); };
  for (const Expr& e : c.cone) {
    if (has(c.stored, e) || !wanted_.contains(e.get())) continue;  // boundaries are wanted too
    if (is_boundary(e) || own_bytes(e) <= bytes_read(e->in, memory)) c.stored = with(std::move(c.stored), e);
  }
  add_domains(c);
  const std::vector<Expr> needed = c.stored;
  if (!c.cone.empty()) add_sites(c, region);
  if (needed.size() + c.sites.size() > 1) choose(c);
  for (const Expr& e : c.stored)
    if (!has(needed, e)) why_stored_[e.get()] = reason(c, e);
  emit_together(c);
}

std::vector<Expr> Partitioner::read_by(const Region& region) const {
  std::vector<Expr> out;
  for (const Node* n : region)
    for (const Expr& x : n->in)
      if (!region.contains(x.get())) out.push_back(x);
  std::ranges::sort(out, earlier);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Future anchors' results count as in memory, and weights are packed.
bool Partitioner::counts_as_memory(const Expr& e) const {
  if (e->family() == Family::Leaf) return is_memory_leaf(e);
  return in_memory(e) || e->family() == Family::Anchor || is_update(e) || e->rate == Rate::Constant;
}

void Partitioner::add_cone(Choosing& c, const std::vector<Expr>& roots) const {
  walk_below(roots, [&](const Expr& e) {
    if (e->family() == Family::Leaf || counts_as_memory(e)) return false;
    c.cone.push_back(e);
    return true;
  });
  std::ranges::sort(c.cone, earlier);
}

// Sets the domain of a value: the rows reduced below it, else its own shape.
void Partitioner::add_domains(Choosing& c) const {
  std::unordered_map<const Node*, Shape> rows;
  for (const Expr& e : c.cone) {
    const auto reduced =
        std::find_if(e->in.rbegin(), e->in.rend(), [&](const Expr& x) { return rows.contains(x.get()); });
    if (is_row_reduction(e))
      rows.emplace(e.get(), e->in[0].shape());
    else if (reduced != e->in.rend())
      rows.emplace(e.get(), Shape(rows.at(reduced->get())));
  }
  const auto add = [&](const Expr& e) {
    const auto it = rows.find(e.get());
    const Shape& shape = it == rows.end() ? e.shape() : it->second;
    const auto known = std::ranges::find(c.domains, shape);
    c.domain_of.emplace(e.get(), known - c.domains.begin());
    if (known == c.domains.end()) c.domains.push_back(shape);
  };
  std::ranges::for_each(c.cone, add);
  std::ranges::for_each(c.stored, add);
}

// The last anchor that `e` waits for, or null. Nodes in `ready` wait for none.
const Node* Partitioner::awaited_anchor(const Expr& e, const std::unordered_set<const Node*>& ready) const {
  const Node* last = nullptr;
  walk_below({e}, [&](const Expr& x) {
    if (in_memory(x) || ready.contains(x.get())) return false;
    const bool anchor = x->family() == Family::Anchor;
    if (anchor && (!last || last->id < x->id)) last = x.get();
    return !anchor;
  });
  return last;
}

// Finds the launches that read the cone: the region's; those of other anchors that read values computed from memory;
// and, for values that wait for an anchor, that anchor's, since they are computed once, there or later.
void Partitioner::add_sites(Choosing& c, const Region& region) const {
  constexpr uint32_t kThisLaunch = 0;  // node 0 is a leaf, so no anchor has this number
  if (!region.empty()) c.sites[kThisLaunch] = read_by(region);
  std::unordered_set<const Node*> seen, ready;
  std::map<uint32_t, std::pair<Expr, Expr>> next;  // users to examine, nearest first, and what they read
  const auto add_users = [&](const Expr& e) {
    ready.insert(e.get());
    for (const Expr& u : users_.of(e))
      if (!region.contains(u.get()) && !in_memory(u)) next.try_emplace(u->id, u, e);
  };
  std::ranges::for_each(c.cone, add_users);
  while (!next.empty() && c.sites.size() <= kSites) {
    const auto [u, e] = next.extract(next.begin()).mapped();
    if (ready.contains(u.get()) || !seen.insert(u.get()).second) continue;
    if (u->family() == Family::Anchor || is_update(u))
      c.sites[u->id] = u->in;
    else if (u->rate > phase_->rate)
      c.sites[u->id] = {e};
    else if (const Node* anchor = awaited_anchor(u, ready))
      c.sites[anchor->id].insert(c.sites[anchor->id].end(), u->in.begin(), u->in.end());
    else if (wanted_.contains(u.get()))
      c.sites[u->id] = {u};
    else
      add_users(u);
  }
}

// Bytes of each launch that stores some of `stored`, one launch per domain, then of each launch that reads them.
std::vector<int64_t> Partitioner::bytes_with(const Choosing& c, const std::vector<Expr>& stored) const {
  std::vector<std::vector<Expr>> launches(c.domains.size());
  for (const Expr& e : stored) launches[c.domain_of.at(e.get())].push_back(e);
  std::vector<int64_t> out;
  for (const std::vector<Expr>& together : launches) {
    out.push_back(together.empty() ? 0 : target_.launch_bytes);
    if (together.empty()) continue;
    for (const Expr& e : together) out.back() += own_bytes(e);
    out.back() += bytes_read(
        together, [&](const Expr& e) { return counts_as_memory(e) || (has(stored, e) && !has(together, e)); });
  }
  const auto memory = [&](const Expr& e) {
    return counts_as_memory(e) || c.region.contains(e.get()) || has(stored, e);
  };
  for (const auto& [anchor, values] : c.sites) out.push_back(bytes_read(values, memory));
  return out;
}

// Greedily adds the value that saves most until none does; among equal ones the last, which leaves least to compute.
void Partitioner::choose(Choosing& c) const {
  const auto total = [&](const std::vector<Expr>& stored) {
    const std::vector<int64_t> bytes = bytes_with(c, stored);
    return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  };
  std::vector<Expr> candidates;
  for (const Expr& e : c.cone) {
    if (e->family() != Family::Pointwise && !is_row_reduction(e)) continue;
    const std::vector<Expr>& users = users_.of(e);
    const bool passed_on = users.size() == 1 && users[0]->family() == Family::Pointwise &&
                           std::ranges::binary_search(c.cone, users[0], earlier) &&
                           own_bytes(users[0]) <= own_bytes(e);  // then prefer what its only reader makes of it
    if (!passed_on) candidates.push_back(e);
  }
  const size_t most = std::clamp<size_t>(kTried / std::max<size_t>(c.cone.size(), 1), 4, kCandidates);
  if (candidates.size() > most)
    candidates.erase(candidates.begin(), candidates.end() - static_cast<std::ptrdiff_t>(most));
  const std::vector<Expr> needed = c.stored;
  int64_t least = total(c.stored);
  while (!candidates.empty()) {
    Expr best;
    for (const Expr& e : candidates) {
      if (has(c.stored, e)) continue;
      const int64_t bytes = total(with(c.stored, e));
      if (bytes <= least) best = e;
      least = std::min(least, bytes);
    }
    if (!best) break;
    c.stored = with(std::move(c.stored), best);
  }
  for (const Expr& e : candidates) {  // drop values that later choices made superfluous
    if (!has(c.stored, e) || has(needed, e)) continue;
    const int64_t bytes = total(without(c.stored, e));
    if (bytes >= least) continue;
    c.stored = without(std::move(c.stored), e);
    least = bytes;
  }
}

// "62 MB moved if it is stored, 186 MB if 3 launches compute it"
std::string Partitioner::reason(const Choosing& c, const Expr& value) const {
  const std::vector<int64_t> read_back = bytes_with(c, c.stored), again = bytes_with(c, without(c.stored, value));
  int64_t once = 0, otherwise = 0;
  int launches = 0;
  for (size_t i = 0; i < read_back.size(); ++i) {
    if (read_back[i] == again[i]) continue;
    once += read_back[i];
    otherwise += again[i];
    ++launches;
  }
  return amount(once) + " moved if it is stored, " + amount(otherwise) + " if " + std::to_string(launches) +
         " launches compute it";
}

// ---- launches without an anchor ----

// Uses as few launches as skeletons allow: values that one loop over rows or elements can compute share a launch.
void Partitioner::emit_together(const Choosing& c) {
  for (std::vector<Expr> values = c.stored; !values.empty();) {
    std::vector<Expr> now{values[0]}, later;
    const auto domain = [&](const Expr& e) -> const Shape& { return c.domains[c.domain_of.at(e.get())]; };
    std::unordered_set<const Node*> apart;  // stored by other launches
    const auto is_apart = [&](const Expr& e) { return apart.contains(e.get()); };
    const auto is_to_come = [&](const Expr& e) { return !buffer_of_.contains(e.get()); };
    if (is_boundary(now[0])) apart.insert(now[0].get());
    size_t refusals = statistic_below(now[0]) ? kResultsTogether : 0;
    for (const Expr& e : std::span(values).subspan(1)) {
      const bool may = now.size() < kResultsTogether && refusals < kResultsTogether && !statistic_below(e) &&
                       same_rows(domain(now[0]), domain(e)) && !any_below({e}, is_apart, is_to_come);
      const bool joins = may && attempt(with(now, e))->launch.form;
      if (may && !joins) ++refusals;
      if (!joins || is_boundary(e)) apart.insert(e.get());
      (joins ? now : later).push_back(e);
    }
    if (statistic_below(now[0]))
      emit_plain(now[0]);
    else
      commit(*attempt_or_materialize(now), now, {});
    std::erase_if(later, [this](const Expr& e) { return buffer_of_.contains(e.get()); });
    values = std::move(later);
  }
}

}  // namespace tenon
