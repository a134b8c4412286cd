#include "tenon/plan/rematerialise.h"

#include <algorithm>
#include <unordered_set>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon {
namespace {

// A device multiplies and adds about so often in the time that a byte takes from memory.
constexpr double kFlopsPerByte = 200;
// The estimate of a plan's memory is put right by plans.
constexpr int kPlans = 6;

using Nodes = std::unordered_set<const Node*>;

Nodes all_below(std::span<const Expr> roots) {
  Nodes out;
  for (const Expr& e : topological(roots)) out.insert(e.get());
  return out;
}

std::vector<Expr> values_of(std::span<const Result> results) {
  std::vector<Expr> out;
  for (const Result& r : results) out.push_back(r.value);
  return out;
}

bool is_second_result(const Expr& e) { return !e->type->companion_of.empty(); }

double bytes_to_compute(const Expr& e) {
  const double out = static_cast<double>(bytes_of(e.shape(), e.dtype()));
  if (e->family() != Family::Anchor) return out;
  const Shape &x = e->in[0].shape(), &w = e->in[1].shape();
  double terms = static_cast<double>(x[-1]);
  if (e.is<nodes::Conv2d>()) terms = static_cast<double>(w[1] * w[2] * w[3]);
  if (e.is<nodes::Attention>()) terms = static_cast<double>(2 * w[2]);
  return out + 2 * terms * static_cast<double>(e.shape().numel()) / kFlopsPerByte;
}

// What is taken to lie in memory: each anchor's result with the pointwise maths that nobody else keeps from its
// epilogue, what is pinned, and results.
Nodes stored_values(const std::vector<Expr>& order, std::span<const Expr> roots) {
  std::unordered_map<const Node*, std::vector<Expr>> users;
  for (const Expr& e : order)
    for (const Expr& x : e->in) users[x.get()].push_back(e);
  Nodes out;
  for (const Expr& e : order) {
    if (e.is<nodes::Barrier>() || e.is<nodes::Materialize>()) out.insert(e->in[0].get());
    if (e->family() != Family::Anchor) continue;
    Expr x = e;
    for (;;) {
      const std::vector<Expr>& readers = users[x.get()];
      const bool passed_on = readers.size() == 1 && readers[0]->family() == Family::Pointwise &&
                             readers[0].shape() == x.shape() && !readers[0].is<nodes::Barrier>();
      if (!passed_on) break;
      x = readers[0];
    }
    out.insert(x.get());
  }
  for (const Expr& e : roots) out.insert(e.get());
  for (const Expr& e : order)
    if (e->family() == Family::Leaf || e->rate == Rate::Constant) out.erase(e.get());
  return out;
}

// In the order in which a plan computes them.
std::vector<Expr> by_stage(std::span<const Expr> roots) {
  std::vector<Expr> order = topological(roots);
  std::unordered_map<const Node*, double> stage;
  for (const Expr& e : order) {
    double& s = stage.emplace(e.get(), e.is<nodes::Barrier>() ? e->attrs.nums[0] : -1).first->second;
    for (const Expr& x : e->in) s = std::max(s, stage.at(x.get()));
  }
  std::ranges::stable_sort(order, {}, [&](const Expr& e) { return stage.at(e.get()); });
  return order;
}

struct Peak {
  int64_t bytes = 0;
  Nodes alive;  // at that time
};

// The most that lies in memory at a time, if everything is computed in order.
Peak peak_of(std::span<const Expr> roots) {
  const std::vector<Expr> order = by_stage(roots);
  const Nodes stored = stored_values(order, roots);
  std::unordered_map<const Node*, size_t> last;  // when the value, or what is computed of it, is read last
  for (const Expr& e : roots) last[e.get()] = order.size();
  for (size_t i = order.size(); i-- > 0;) {
    const Expr& e = order[i];
    const size_t read = stored.contains(e.get()) ? i : last[e.get()];
    for (const Expr& x : e->in) last[x.get()] = std::max(last[x.get()], read);
  }
  std::vector<std::vector<Expr>> ends(order.size() + 1);
  Nodes alive;
  Peak peak;
  int64_t now = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const Expr& e = order[i];
    if (stored.contains(e.get())) {
      alive.insert(e.get());
      now += bytes_of(e.shape(), e.dtype());
      ends[std::max(last[e.get()], i)].push_back(e);
    }
    if (now > peak.bytes) peak = {now, alive};
    for (const Expr& done : ends[i]) {
      alive.erase(done.get());
      now -= bytes_of(done.shape(), done.dtype());
    }
  }
  return peak;
}

class Rematerialiser {
 public:
  Rematerialiser(std::span<const Expr> roots, std::span<const Expr> forward)
      : roots_(roots.begin(), roots.end()), forward_(all_below(forward)) {
    const std::vector<Expr> order = by_stage(roots_);
    for (const Expr& e : order)  // leaves with an anchor below `forward`; only gradients read it
      if (is_second_result(e) && std::ranges::all_of(e->in, [&](const Expr& x) { return forward_.contains(x.get()); }))
        forward_.insert(e.get());
    Nodes kept = stored_values(order, roots_);
    for (const Expr& e : forward) kept.insert(e.get());
    double last = -1;
    for (const Expr& e : order) {
      if (e.is<nodes::Barrier>()) last = std::max(last, e->attrs.nums[0]);
      if (forward_.contains(e.get()) && kept.contains(e.get()) && e->family() != Family::Leaf) kept_.push_back(e);
    }
    first_stage_ = static_cast<int>(last) + 1;
    for (const Expr& e : kept_) is_kept_.insert(e.get());
    for (const Expr& e : kept_)
      if (std::ranges::find(forward, e) == forward.end() && std::ranges::find(roots_, e) == roots_.end() &&
          !is_second_result(e))  // it cannot be computed by itself
        candidates_.push_back(e);
  }

  // The results with less given up than would bring the estimate of their memory below `bytes`, or all that helps.
  std::vector<Expr> within(int64_t bytes) const {
    Nodes dropped;
    std::vector<Expr> now = roots_;
    for (Peak peak = peak_of(now); peak.bytes > bytes;) {
      bool progress = false;
      for (const Expr& e : by_worth(peak, dropped)) {
        Nodes more = dropped;
        more.insert(e.get());
        std::vector<Expr> changed = without(more);
        Peak lower = peak_of(changed);
        if (lower.bytes >= peak.bytes) continue;
        dropped = std::move(more), now = std::move(changed), peak = std::move(lower);
        progress = true;
        break;
      }
      if (!progress) break;
    }
    return now;
  }

 private:
  // Candidates that lie in memory at the peak; first those that free most bytes for what they cost.
  std::vector<Expr> by_worth(const Peak& peak, const Nodes& dropped) const {
    std::vector<std::pair<double, Expr>> order;
    for (const Expr& e : candidates_)
      if (!dropped.contains(e.get()) && peak.alive.contains(e.get()))
        order.emplace_back(cost(e) / static_cast<double>(bytes_of(e.shape(), e.dtype())), e);
    std::ranges::stable_sort(order, {}, [](const auto& c) { return c.first; });
    std::vector<Expr> out;
    for (const auto& [cost, e] : order) out.push_back(e);
    return out;
  }

  // Of computing e once more, down to what is kept or computed again for others.
  double cost(const Expr& e) const {
    double total = 0;
    std::vector<Expr> stack{e};
    Nodes seen;
    while (!stack.empty()) {
      const Expr x = stack.back();
      stack.pop_back();
      if (!seen.insert(x.get()).second || x->family() == Family::Leaf || x->rate == Rate::Constant) continue;
      if (x != e && is_kept_.contains(x.get())) continue;
      total += bytes_to_compute(x);
      stack.insert(stack.end(), x->in.begin(), x->in.end());
    }
    return total;
  }

  // The results with every reader behind the forward pass reading second copies of what is `dropped`. They are made of
  // what is kept, behind barriers: the later in the pass, the earlier its gradient's turn.
  std::vector<Expr> without(const Nodes& dropped) const {
    Graph& g = roots_[0].graph();
    Memo copies, memo;
    for (size_t i = 0; i < kept_.size(); ++i)
      if (!dropped.contains(kept_[i].get()))
        copies.emplace(kept_[i].get(), barrier(kept_[i], first_stage_ + static_cast<int>(kept_.size() - i)));
    for (const Expr& e : topological(roots_))
      if (forward_.contains(e.get())) memo.emplace(e.get(), e);
    const Replace again = [&](const Expr& e, std::span<const Expr>) { return e->rate == Rate::Constant ? e : Expr(); };
    const Replace second = [&](const Expr& e, std::span<const Expr> in) {
      std::vector<Expr> operands(in.begin(), in.end());
      for (Expr& x : operands)
        if (forward_.contains(x.get()) && needs_copy(x, dropped)) x = rebuild(g, x, again, copies);
      return g.make(*e->type, operands, e->attrs);
    };
    std::vector<Expr> out;
    for (const Expr& r : roots_) out.push_back(rebuild(g, r, second, memo));
    return out;
  }

  // True if nothing that is kept lies between e and something dropped.
  bool needs_copy(const Expr& e, const Nodes& dropped) const {
    std::vector<Expr> stack{e};
    Nodes seen;
    while (!stack.empty()) {
      const Expr x = stack.back();
      stack.pop_back();
      if (dropped.contains(x.get())) return true;
      if (!seen.insert(x.get()).second || is_kept_.contains(x.get())) continue;
      stack.insert(stack.end(), x->in.begin(), x->in.end());
    }
    return false;
  }

  std::vector<Expr> roots_;
  Nodes forward_, is_kept_;              // kept_ as a set
  std::vector<Expr> kept_, candidates_;  // in the order of the forward pass
  int first_stage_ = 0;
};

}  // namespace

std::vector<Result> rematerialise(std::span<const Result> results, std::span<const Expr> forward, int64_t bytes,
                                  const PlanOptions& options) {
  std::vector<Result> out(results.begin(), results.end());
  int64_t least = make_plan(out, options).arena_bytes;
  if (least <= bytes) return out;
  Graph trials;
  const auto in = [](Graph& g, std::vector<Expr> values) {
    Memo memo;
    for (Expr& e : values) e = rebuild(g, e, memo);
    return values;
  };
  std::vector<Expr> both = values_of(out);
  both.insert(both.end(), forward.begin(), forward.end());
  both = in(trials, both);
  const Rematerialiser program({both.begin(), both.begin() + std::ssize(out)},
                               {both.begin() + std::ssize(out), both.end()});
  double aim = static_cast<double>(bytes);
  for (int i = 0; i < kPlans; ++i) {
    const std::vector<Expr> values = in(results[0].value.graph(), program.within(static_cast<int64_t>(aim)));
    for (size_t k = 0; k < out.size(); ++k) out[k].value = values[k];
    const int64_t arena = make_plan(out, options).arena_bytes;
    if (arena <= bytes) return out;
    least = std::min(least, arena);
    aim *= 0.9 * static_cast<double>(bytes) / static_cast<double>(arena);
  }
  throw Error(ErrorKind::Memory, options.name,
              "needs an arena of " + std::to_string(least) + " bytes even where values are computed again, more than " +
                  std::to_string(bytes));
}

}  // namespace tenon
