#include "tenon/train/rematerialise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <unordered_set>

#include "tenon/core/clock.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"
#include "tenon/expr/ops.h"
#include "tenon/plan/stages.h"

namespace tenon {
namespace {

// Roughly the flops of a device in the time that it takes to read a byte from memory.
constexpr double kFlopsPerByte = 200;
// The memory estimate is corrected by making this many actual plans at most.
constexpr int kPlans = 8;
// Number of points at which the minimum of memory is searched for, since it is not at either end.
constexpr size_t kParts = 16;
constexpr double kLongSeconds = 1;  // after which a user is told what takes so long

using Nodes = std::unordered_set<const Node*>;

Nodes all_below(std::span<const Expr> roots) {
  Nodes out;
  for (const Expr& e : topological(roots)) out.insert(e.get());
  return out;
}

Nodes nodes_of(std::span<const Expr> values) {
  Nodes out;
  for (const Expr& e : values) out.insert(e.get());
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

// Values assumed to be stored: each anchor's result after the pointwise maths that fits into its epilogue (nobody else
// reads the values between), pinned values, and results.
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
  // Also sums along a network, such as a residual stream that every block adds to: read several times, with more bytes
  // of operands than their own.
  std::unordered_map<const Node*, Nodes> below;
  for (const Expr& e : order) {
    if (e->rate == Rate::Constant) continue;
    Nodes& all = below[e.get()];
    int64_t bytes = 0;
    for (const Expr& x : e->in)
      if (out.contains(x.get()) || x->family() == Family::Leaf)
        all.insert(x.get());
      else
        all.insert(below[x.get()].begin(), below[x.get()].end());
    for (const Node* n : all) bytes += bytes_of(n->shape, n->dtype);
    const bool sum = e->family() == Family::Pointwise && users[e.get()].size() > 1;
    if (sum && bytes > 3 * bytes_of(e.shape(), e.dtype())) out.insert(e.get());
  }
  return out;
}

// When values are in memory, if everything is computed in order.
struct Lives {
  std::unordered_map<const Node*, std::pair<size_t, size_t>> of;  // first and last step
  std::vector<int64_t> bytes;                                     // at each step

  int64_t most() const { return std::ranges::max(bytes); }
  int64_t narrowest(const Expr& e) const {
    const auto [first, last] = of.at(e.get());
    return *std::min_element(bytes.begin() + static_cast<std::ptrdiff_t>(first),
                             bytes.begin() + static_cast<std::ptrdiff_t>(std::max(last, first + 1)));
  }
};

Lives lives_of(const std::vector<Expr>& order, const Nodes& stored, std::span<const Expr> roots) {
  std::unordered_map<const Node*, size_t> last;  // last step that reads the value or something computed from it
  for (const Expr& e : roots) last[e.get()] = order.size() - 1;
  for (size_t i = order.size(); i-- > 0;) {
    const Expr& e = order[i];
    const size_t read = stored.contains(e.get()) ? i : last[e.get()];
    for (const Expr& x : e->in) last[x.get()] = std::max(last[x.get()], read);
  }
  Lives out;
  std::vector<int64_t> change(order.size() + 1);
  for (size_t i = 0; i < order.size(); ++i) {
    const Expr& e = order[i];
    if (!stored.contains(e.get())) continue;
    const size_t end = std::max(last[e.get()], i);
    out.of[e.get()] = {i, end};
    change[i] += bytes_of(e.shape(), e.dtype());
    change[end + 1] -= bytes_of(e.shape(), e.dtype());
  }
  int64_t now = 0;
  for (size_t i = 0; i < order.size(); ++i) out.bytes.push_back(now += change[i]);
  return out;
}

class Rematerialiser {
 public:
  Rematerialiser(std::span<const Expr> roots, std::span<const Expr> forward)
      : roots_(roots.begin(), roots.end()), forward_(all_below(forward)), ends_(nodes_of(forward)) {
    const std::vector<Expr> order = order_of_stages(roots_).values;
    for (const Expr& e : order)  // leaves with an anchor below `forward`; only gradients read them
      if (is_second_result(e) && std::ranges::all_of(e->in, [&](const Expr& x) { return forward_.contains(x.get()); }))
        forward_.insert(e.get());
    for (const Expr& e : topological(roots_)) {
      if (forward_.contains(e.get())) {
        forward_order_.push_back(e);
        continue;
      }
      for (const Expr& x : e->in)
        if (is_read_again(x)) reads_.push_back(x);
    }
    Nodes kept = stored_values(order, roots_);
    for (const Expr& e : forward) kept.insert(e.get());
    double last = -1;
    for (const Expr& e : order) {
      if (e.is<nodes::Barrier>()) last = std::max(last, e->attrs.nums[0]);
      if (forward_.contains(e.get()) && kept.contains(e.get()) && e->family() != Family::Leaf) kept_.push_back(e);
    }
    stage_ = static_cast<int>(last) + 1;
    is_kept_ = nodes_of(kept_);
    for (const Expr& e : kept_)
      if (std::ranges::find(forward, e) == forward.end() && std::ranges::find(roots_, e) == roots_.end() &&
          !is_second_result(e))  // computing it again takes its anchor again
        candidates_.push_back(e);
    for (const Expr& e : order)
      if (e.is<nodes::Linear>() && !forward_.contains(e.get()))
        for (const Expr& x : e->in) add_operand(x);
    sort_candidates(lives_of(order_of_stages(forward).values, kept, forward));
  }

  // Bytes that the results need if the first `dropped` candidates are.
  int64_t estimate(size_t dropped) {
    dropped = std::min(dropped, candidates_.size());
    const auto [it, fresh] = estimates_.try_emplace(dropped);
    if (!fresh) return it->second;
    const std::vector<Expr> now = without(dropped), order = order_of_stages(now).values;
    return it->second = lives_of(order, stored_values(order, now), now).most();
  }

  // The smallest number of candidates to drop for which the estimated memory of the results is at most `bytes`, or else
  // the number with the smallest estimate.
  size_t enough(int64_t bytes) {
    size_t few = 0, best = 0, many = candidates_.size() + 1;
    for (size_t part = 0; part <= kParts && many > candidates_.size(); ++part) {
      const size_t n = candidates_.size() * part / kParts;
      (estimate(n) <= bytes ? many : few) = n;
      if (estimate(n) < estimate(best)) best = n;
    }
    if (many > candidates_.size()) return best;
    while (few + 1 < many) {
      const size_t middle = (few + many) / 2;
      (estimate(middle) <= bytes ? many : few) = middle;
    }
    return many;
  }
  size_t part() const { return candidates_.size() / kParts + 1; }

  // The results rebuilt so that every reader after the forward pass reads kept values through barriers, and the first
  // `count` candidates from second copies computed from those. Values that are no candidates (maths between products)
  // are always recomputed. Kept values need barriers too: otherwise what gradients compute from the forward pass alone,
  // such as attention weights, would be scheduled first of all.
  std::vector<Expr> without(size_t count) const {
    Graph& g = roots_[0].graph();
    const Nodes dropped = nodes_of(std::span(candidates_).first(std::min(count, candidates_.size())));
    const Memo copies = copies_without(dropped);
    const Replace second = [&](const Expr& e, std::span<const Expr> in) {
      if (forward_.contains(e.get())) return e;
      std::vector<Expr> operands(in.begin(), in.end());
      for (size_t i = 0; i < operands.size(); ++i)
        if (is_read_again(e->in[i])) operands[i] = copies.at(e->in[i].get());
      return g.make(*e->type, operands, e->attrs);
    };
    std::vector<Expr> out = rebuild(g, roots_, second);
    // A further stage after the gradients makes those of their values that are stored wait for their turn. An update
    // behind a barrier would be none.
    const auto size = [](const Expr& e) { return is_update(e) ? INT64_MAX : e.shape().numel(); };
    Expr& least = *std::ranges::min_element(out, {}, size);
    if (!is_update(least)) least = barrier(least, stage_ + 1);
    return out;
  }

 private:
  bool is_read_again(const Expr& x) const { return forward_.contains(x.get()) && !ends_.contains(x.get()); }

  // What the gradients read of the forward pass, and what it is recomputed from: kept values behind barriers. One walk
  // for all: a rebuild() per value would walk everything below each.
  Memo copies_without(const Nodes& dropped) const {
    Graph& g = roots_[0].graph();
    Memo copies;
    for (const Expr& e : kept_)
      if (!dropped.contains(e.get())) copies.emplace(e.get(), barrier(e, stage_));
    Nodes needed;
    walk_below(reads_, [&](const Expr& e) {
      needed.insert(e.get());
      return e->rate != Rate::Constant && !copies.contains(e.get());
    });
    for (const Expr& e : forward_order_) {
      if (!needed.contains(e.get()) || copies.contains(e.get())) continue;
      if (e->rate == Rate::Constant) {
        copies.emplace(e.get(), e);
        continue;
      }
      std::vector<Expr> in;
      for (const Expr& x : e->in) in.push_back(copies.at(x.get()));
      const Expr copy = g.make(*e->type, in, e->attrs);
      copies.emplace(e.get(), operands_.contains(e.get()) ? materialize(copy) : copy);
    }
    return copies;
  }

  // What a product of the gradients reads of the forward pass is materialised before it, as it was in the forward pass;
  // only then is the other operand read in place.
  void add_operand(Expr x) {
    while (x->family() == Family::View && !forward_.contains(x.get())) x = x->in[0];
    if (!forward_.contains(x.get())) return;
    Expr base = x;
    bool moves = false;
    for (; base->family() == Family::View && base->in.size() == 1; base = base->in[0])
      moves = moves || base.is<nodes::Permute>();
    if (base->family() == Family::Leaf || base->rate == Rate::Constant) return;
    if (moves)
      operands_.insert(x.get());
    else if (!is_kept_.contains(base.get()))
      operands_.insert(base.get());
  }

  // First candidates that live only where the forward pass holds much, cheapest first. Last the ends of blocks, from
  // which everything else can be computed; among equals every second one before every fourth.
  void sort_candidates(const Lives& forward) {
    std::unordered_map<const Node*, double> worth;
    std::unordered_map<const Node*, int64_t> narrowest;  // approximate, so that layers of one kind are equal
    for (const Expr& e : candidates_) {
      worth[e.get()] = cost(e) / static_cast<double>(bytes_of(e.shape(), e.dtype()));
      narrowest[e.get()] = std::lround(4 * std::log2(static_cast<double>(forward.narrowest(e) + 1)));
    }
    std::ranges::stable_sort(candidates_, {}, [&](const Expr& e) { return worth.at(e.get()); });
    std::ranges::stable_sort(candidates_, std::greater(), [&](const Expr& e) { return narrowest.at(e.get()); });
    std::unordered_map<const Node*, int> turn;
    uint64_t rank = 0;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const bool same = i > 0 && narrowest.at(candidates_[i].get()) == narrowest.at(candidates_[i - 1].get());
      rank = same ? rank + 1 : 1;
      turn[candidates_[i].get()] = std::countr_zero(rank);
    }
    std::ranges::stable_sort(candidates_, [&](const Expr& a, const Expr& b) {
      const int64_t in_a = narrowest.at(a.get()), in_b = narrowest.at(b.get());
      return in_a != in_b ? in_a > in_b : turn.at(a.get()) < turn.at(b.get());
    });
  }

  // The cost of recomputing e from values that are kept or recomputed anyway.
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

  std::vector<Expr> roots_;
  Nodes forward_, ends_, operands_, is_kept_;  // kept_ as a set
  std::vector<Expr> forward_order_, reads_;    // all of the forward pass; what gradients read of it again
  std::vector<Expr> kept_, candidates_;        // in the order of the forward pass
  std::map<size_t, int64_t> estimates_;        // bytes, by number of dropped candidates
  int stage_ = 0;                              // of the gradients
};

}  // namespace

std::vector<Result> rematerialise(std::span<const Result> results, std::span<const Expr> forward, int64_t bytes,
                                  const PlanOptions& options) {
  std::vector<Result> out(results.begin(), results.end()), smallest = out;
  const Clock::time_point begin = Clock::now();
  int64_t least = make_plan(out, options).arena_bytes;
  if (least <= bytes) return out;
  Graph trials;
  std::vector<Expr> both = values_of(out);
  both.insert(both.end(), forward.begin(), forward.end());
  both = rebuild(trials, both, Replace());
  Rematerialiser program({both.begin(), both.begin() + std::ssize(out)}, {both.begin() + std::ssize(out), both.end()});
  double aim = static_cast<double>(bytes);
  size_t given_up = 0, least_at = 0;
  bool said = false;
  for (int i = 0; i < kPlans; ++i) {
    if (!said && seconds_since(begin) > kLongSeconds) spdlog::info("looking for values to recompute"), said = true;
    const std::vector<Expr> values = rebuild(results[0].value.graph(), program.without(given_up), Replace());
    for (size_t k = 0; k < out.size(); ++k) out[k].value = values[k];
    const int64_t arena = make_plan(out, options).arena_bytes;
    if (arena <= bytes) return out;
    // Where more only took more, and is estimated to, still more seldom takes less: a limit is worth trying it.
    const bool more = given_up > least_at && arena >= least;
    if (bytes == kSmallestArena && more && program.estimate(given_up) >= program.estimate(least_at)) break;
    if (arena < least) least = arena, smallest = out, least_at = given_up;
    given_up = std::max(program.enough(static_cast<int64_t>(aim)), given_up + program.part());
    aim *= 0.9 * static_cast<double>(bytes) / static_cast<double>(arena);
  }
  if (bytes == kSmallestArena) return smallest;
  throw Error(ErrorKind::Memory, options.name,
              "needs an arena of " + std::to_string(least) + " bytes even with recomputation, more than " +
                  std::to_string(bytes),
              "raise --max-memory to " + mebibytes(least) + " or more");
}

}  // namespace tenon
