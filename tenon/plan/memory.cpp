// Where buffers are stored: with the weights, or at arena offsets chosen by liveness, each at the lowest offset free
// for its whole life, in the best of several orders. Also finds which buffers are settled when a launch begins.
#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/plan/plan.h"

namespace tenon {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

struct Life {
  Buffer* buffer = nullptr;
  int first = std::numeric_limits<int>::max(), last = -1;
  int again = 0;  // it is kept while the launches in front of this position, those of slower phases, run again
  bool meets(const Life& o) const { return (first <= o.last && o.first <= last) || first < o.again || o.first < again; }
};

// Positions count across all phases. A value read by a later phase lives to the end, since that phase is repeated.
std::vector<Life> lives_of(Plan& plan) {
  std::map<std::string, Life> lives;
  for (Buffer& b : plan.buffers) {
    TENON_CHECK(Usage, !b.name.starts_with('%'), plan.name)
        << "a tensor is named '" << b.name << "', but names that begin with '%' are for what kernels compute";
    const Buffer* const other = std::exchange(lives[b.name].buffer, &b);  // the caller's memory may be both
    const bool both = other && other->outside && b.outside && other->shape == b.shape && other->role != b.role;
    TENON_CHECK(Usage, !other || both, plan.name)
        << "two of its inputs, results and states are named '" << b.name << "'";
  }
  int end = 0, at = 0;
  for (const Phase& p : plan.phases) end += static_cast<int>(p.launches.size());
  for (const Phase& p : plan.phases)
    for (const Launch& l : p.launches) {
      const auto touch = [&](const std::string& name, const Expr& e) {
        const auto it = lives.find(name);
        const bool fits =
            it != lives.end() && it->second.buffer->shape == e.shape() && it->second.buffer->dtype == e.dtype();
        TENON_CHECK(Usage, fits, plan.name)
            << "launch '" << l.name << "' uses '" << name << "' as " << name_of(e.dtype()) << " " << e.shape().str()
            << ", but no buffer of this name and type is in the plan";
        Life& life = it->second;
        life.first = std::min(life.first, at);
        life.last = std::max(life.last, life.buffer->rate == p.rate ? at : end);
      };
      for (const Expr& e : operands_of(l))
        if (!e.is<nodes::Param>()) touch(e->attrs.text, e);
      for (const Output& o : l.outputs) touch(o.buffer, o.value);
      ++at;
    }
  std::vector<Life> out;
  for (auto& [name, l] : lives) {
    if (l.buffer->role == BufferRole::Input) l.first = 0;
    if (l.buffer->role != BufferRole::Temporary || l.last < 0) l.last = end;
    l.first = std::min(l.first, l.last);
    for (const Phase& p : plan.phases)
      if (l.last == end && p.rate < l.buffer->rate) l.again += static_cast<int>(p.launches.size());
    l.buffer->bytes = bytes_of(l.buffer->shape, l.buffer->dtype);
    if (l.buffer->in_arena()) out.push_back(l);
  }
  return out;
}

// Places each at the lowest offset free for its whole life. Returns the bytes of all.
int64_t place(const std::vector<Life>& lives) {
  struct Taken {
    int64_t begin, end;
    Life life;
  };
  int64_t bytes = 0;
  std::vector<Taken> placed;  // by begin; read far more often than inserted into
  for (const Life& l : lives) {
    int64_t offset = 0;
    for (const Taken& o : placed) {
      if (!o.life.meets(l)) continue;
      if (o.begin >= offset + l.buffer->bytes) break;
      offset = std::max(offset, o.end);
    }
    l.buffer->offset = offset;
    const int64_t end = aligned(offset + l.buffer->bytes);
    bytes = std::max(bytes, end);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, &Taken::begin), {offset, end, l});
  }
  return bytes;
}

}  // namespace

void find_stored(Plan& plan) {
  std::map<std::string, Buffer*> buffers;
  for (Buffer& b : plan.buffers) buffers[b.name] = &b;
  const auto is_stored = [&](const std::string& name) { return buffers.contains(name) && buffers.at(name)->stored; };
  const auto storable = [&](const std::string& name) {
    const auto it = buffers.find(name);
    return it != buffers.end() && it->second->in_arena() && it->second->role != BufferRole::Input;
  };
  for (Phase& p : plan.phases) {
    if (p.rate != Rate::Constant) continue;
    for (const Launch& l : p.launches) {
      const std::vector<Expr> read = operands_of(l);
      const bool good =
          std::ranges::all_of(read, [&](const Expr& e) { return e.is<nodes::Param>() || is_stored(e->attrs.text); }) &&
          std::ranges::all_of(l.outputs, [&](const Output& o) { return storable(o.buffer); });
      for (const Output& o : l.outputs)
        if (good) buffers.at(o.buffer)->stored = true;
    }
  }
}

// The previous launch is the last one that runs with this one: not a stored one. If it writes no elements, it may have
// no kernel, so the kernel in front is another launch's: settle nothing then.
void find_settled(Plan& plan) {
  const auto writes = [](const Launch& by, const std::string& name) {
    return std::ranges::find(by.outputs, name, &Output::buffer) != by.outputs.end();
  };
  const auto is_empty = [](const Output& o) { return o.value.shape().numel() == 0; };
  for (Phase& phase : plan.phases) {
    const Launch* before = nullptr;
    for (Launch& l : phase.launches) {
      if (phase.rate == Rate::Constant && plan.stored(l)) continue;
      const Launch* const previous = std::exchange(before, &l);
      if (!previous || std::ranges::all_of(previous->outputs, is_empty)) continue;
      for (const Expr& e : operands_of(l))
        if (!e.is<nodes::Param>() && !writes(l, e->attrs.text) && !writes(*previous, e->attrs.text))
          l.settled.push_back(e->attrs.text);
    }
  }
}

void lay_out_memory(Plan& plan) {
  std::vector<Life> lives = lives_of(plan);
  std::ranges::stable_sort(lives, std::greater(), [](const Life& l) { return l.buffer->bytes; });
  // Results are adjacent, the last written first: plans with equal results place them at equal offsets.
  const auto is_result = [](const Life& l) { return l.buffer->role == BufferRole::Output; };
  const auto rest = std::stable_partition(lives.begin(), lives.end(), is_result);
  std::stable_sort(lives.begin(), rest, [](const Life& a, const Life& b) { return a.first > b.first; });
  // Alternatively, after the results: first the buffers live at the point of peak usage, the last to end first.
  std::map<int, int64_t> there;
  for (const Life& l : std::span(rest, lives.end()))
    for (int i = l.first; i <= l.last; ++i) there[i] += l.buffer->bytes;
  const int at = there.empty() ? 0 : std::ranges::max_element(there, {}, [](const auto& t) { return t.second; })->first;
  std::vector<Life> best = lives;
  plan.arena_bytes = place(lives);
  const auto small =
      std::stable_partition(rest, lives.end(), [&](const Life& l) { return l.first <= at && at <= l.last; });
  std::stable_sort(rest, small, [](const Life& a, const Life& b) { return a.last > b.last; });
  for (const bool by_life : {false, true}) {
    if (by_life)
      std::stable_sort(small, lives.end(),
                       [](const Life& a, const Life& b) { return a.last - a.first > b.last - b.first; });
    if (const int64_t bytes = place(lives); bytes < plan.arena_bytes) plan.arena_bytes = bytes, best = lives;
  }
  place(best);
}

}  // namespace tenon
