#include "tenon/backend/staging.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tenon/backend/arena.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

// One place is read while the other is filled.
constexpr int64_t kPlacesOfLargest = 2;

// A weight, merged over all its readers.
struct Entry {
  int64_t bytes;
  bool forced, may_leave, once;
};
using Entries = std::map<std::string_view, Entry>;

Entries entries_of(std::span<const WeightRead> reads) {
  Entries out;
  for (const WeightRead& r : reads) {
    const bool free = !r.on_host && r.bytes >= kMinOffloaded;
    const auto [it, fresh] = out.try_emplace(r.key, Entry{r.bytes, r.on_host.value_or(false), free, r.once});
    it->second.once &= r.once;
  }
  return out;
}

// What one launch reads.
struct Visit {
  size_t launch, first;
  int64_t bytes = 0;  // each weight counted once
  std::vector<const WeightRead*> reads;
};

std::vector<Visit> visits_of(std::span<const WeightRead> reads, const std::function<bool(const WeightRead&)>& leaves) {
  std::vector<Visit> out;
  std::set<std::string_view> seen;
  for (const WeightRead& r : reads) {
    if (!leaves(r)) continue;
    if (out.empty() || out.back().launch != r.launch) {
      out.push_back({r.launch, r.first, 0, {}});
      seen.clear();
    }
    out.back().reads.push_back(&r);
    if (seen.insert(r.key).second) out.back().bytes += Arena::aligned(r.bytes);
  }
  return out;
}

int64_t places_for(const std::vector<Visit>& visits) {
  int64_t most = 0;
  for (const Visit& v : visits) most = std::max(most, v.bytes);
  return kPlacesOfLargest * most;
}

// Size limit for offloaded weights: the smallest one that saves enough, because smaller weights need smaller places.
struct Limit {
  int64_t largest = 0, places = 0, needed = std::numeric_limits<int64_t>::max();
};

Limit limit_of(std::span<const WeightRead> reads, const Entries& entries, const Offload& offload, int64_t all,
               int64_t& least) {
  std::set<int64_t> sizes{0};
  for (const auto& [key, e] : entries)
    if (e.may_leave) sizes.insert(e.bytes);
  Limit smallest, first;
  for (const int64_t largest : sizes) {
    const auto leaves = [&](const Entry& e) { return e.forced || (e.may_leave && e.bytes <= largest); };
    const int64_t places = places_for(visits_of(reads, [&](const WeightRead& r) { return leaves(entries.at(r.key)); }));
    int64_t needed = all + places;
    for (const auto& [key, e] : entries) needed -= leaves(e) ? e.bytes : 0;
    if (needed < smallest.needed) smallest = {largest, places, needed};
    if (needed <= offload.bytes && first.needed > offload.bytes) first = {largest, places, needed};
  }
  least = smallest.needed;
  return offload.all || first.needed > offload.bytes ? smallest : first;
}

// The weights that may be offloaded, in that order: those of slower phases first, then the rest in golden-section
// steps, so that every prefix is spread evenly over the network.
std::vector<std::string_view> order_of(std::span<const WeightRead> reads, const Entries& entries, int64_t largest) {
  constexpr double kGolden = 0.6180339887498949;
  std::vector<std::pair<double, std::string_view>> order;
  std::set<std::string_view> seen;
  for (const WeightRead& r : reads) {
    const Entry& e = entries.at(r.key);
    if (!e.may_leave || e.bytes > largest || !seen.insert(r.key).second) continue;
    const double turn = kGolden * static_cast<double>(order.size() + 1);
    order.emplace_back(e.once ? -1 : turn - std::floor(turn), r.key);
  }
  std::ranges::stable_sort(order, {}, &std::pair<double, std::string_view>::first);
  std::vector<std::string_view> out;
  for (const auto& [turn, key] : order) out.push_back(key);
  return out;
}

// Assigns places to a phase's visits: each goes where the last reader of the overwritten weights is earliest.
class Places {
 public:
  explicit Places(StagingPlan& plan) : plan_(plan) {}

  void add(const Visit& visit) {
    if (visit.first != first_) taken_.clear();  // a phase begins after all earlier ones are done
    first_ = visit.first;
    int64_t at = 0, free_behind = std::numeric_limits<int64_t>::max();
    std::vector<int64_t> candidates{0};
    for (const Taken& t : taken_) candidates.push_back(t.end);
    for (const int64_t begin : candidates) {
      if (begin + visit.bytes > plan_.bytes) continue;
      const int64_t behind = last_reader(begin, begin + visit.bytes);
      if (behind < free_behind) {
        at = begin;
        free_behind = behind;
      }
    }
    const int64_t end = at + visit.bytes;
    std::erase_if(taken_, [&](const Taken& t) { return t.begin >= at && t.end <= end; });
    taken_.push_back({at, end, static_cast<int64_t>(visit.launch)});
    auto& copies = free_behind < 0 ? plan_.before[visit.first] : plan_.behind[static_cast<size_t>(free_behind)];
    std::map<std::string_view, int64_t> places;
    for (const WeightRead* r : visit.reads) {
      const auto [place, fresh] = places.emplace(r->key, at);
      plan_.places[{visit.launch, r->part}] = place->second;
      if (!fresh) continue;
      copies.push_back({visit.launch, r->part, at, r->bytes});
      at += Arena::aligned(r->bytes);
    }
  }

 private:
  struct Taken {
    int64_t begin, end, launch;
  };
  int64_t last_reader(int64_t begin, int64_t end) const {
    int64_t last = -1;
    for (const Taken& t : taken_)
      if (t.begin < end && begin < t.end) last = std::max(last, t.launch);
    return last;
  }

  StagingPlan& plan_;
  size_t first_ = 0;
  std::vector<Taken> taken_;
};

}  // namespace

StagingPlan plan_staging(std::span<const WeightRead> reads, const Offload& offload, int64_t all) {
  StagingPlan out;
  const Entries entries = entries_of(reads);
  const Limit limit = limit_of(reads, entries, offload, all, out.least);
  int64_t taken = all;
  for (const auto& [key, e] : entries) {
    if (!e.forced) continue;
    out.offloaded.emplace(key);
    taken -= e.bytes;
  }
  const auto leaves = [&](const WeightRead& r) { return out.offloaded.contains(r.key); };
  const bool everything = offload.all || limit.needed > offload.bytes;
  for (const std::string_view key : order_of(reads, entries, limit.largest)) {
    if (!everything && taken + limit.places <= offload.bytes) break;
    out.offloaded.emplace(key);
    taken -= entries.at(key).bytes;
  }
  const std::vector<Visit> visits = visits_of(reads, leaves);
  out.bytes = places_for(visits);
  Places places(out);
  for (const Visit& v : visits) places.add(v);
  return out;
}

Staging::Staging(StagingPlan plan, std::shared_ptr<Backend> backend, std::vector<std::shared_ptr<void>> weights)
    : plan_(std::move(plan)),
      backend_(std::move(backend)),
      weights_(std::move(weights)),
      memory_(plan_.bytes ? backend_->allocate(plan_.bytes) : nullptr) {}

void* Staging::place(size_t launch, size_t part) const {
  const auto it = plan_.places.find({launch, part});
  return it == plan_.places.end() ? nullptr : static_cast<std::byte*>(memory_.get()) + it->second;
}

void Staging::run(Stream& on, size_t launch, const std::function<void()>& put) {
  copy(on, plan_.before, launch);
  if (const auto it = arrived_.find(launch); it != arrived_.end()) {
    on.wait(*it->second);
    arrived_.erase(it);
  }
  put();
  copy(on, plan_.behind, launch);
}

void Staging::copy(Stream& on, const std::map<size_t, std::vector<StagingPlan::Copy>>& copies, size_t launch) {
  const auto it = copies.find(launch);
  if (it == copies.end()) return;
  Stream& beside = on.beside();
  beside.wait(*on.mark());
  for (const StagingPlan::Copy& c : it->second) {
    backend_->fetch(beside, static_cast<std::byte*>(memory_.get()) + c.at, weights_[c.part].get(), c.bytes);
    arrived_[c.launch] = beside.mark();
  }
}

}  // namespace tenon
