// Where buffers live: with the weights, or at offsets by liveness, largest first, each at the lowest place free for its
// whole life; and which of them are whole when a launch begins.
#include <algorithm>
#include <limits>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/plan/plan.h"

namespace tenon {
namespace {

constexpr int64_t kAlignment = 64;

struct Life {
  Buffer* buffer;
  int first = std::numeric_limits<int>::max(), last = -1;
};

// Positions run through all phases. A value read by a later phase stays until the end, since that phase is repeated.
std::vector<Life> lives_of(Plan& plan) {
  std::vector<Life> lives;
  std::map<std::string, size_t> index;
  for (Buffer& b : plan.buffers) {
    index[b.name] = lives.size();
    lives.push_back({&b});
  }
  int end = 0;
  for (const Phase& p : plan.phases) end += static_cast<int>(p.launches.size());
  int at = 0;
  for (const Phase& p : plan.phases)
    for (const Launch& l : p.launches) {
      const auto touch = [&](const std::string& name) {
        const auto it = index.find(name);
        TENON_CHECK(Internal, it != index.end(), plan.name)
            << "launch " << l.name << " uses unknown buffer '" << name << "'";
        Life& life = lives[it->second];
        life.first = std::min(life.first, at);
        life.last = std::max(life.last, life.buffer->rate == p.rate ? at : end);
      };
      for (const Expr& e : operands_of(l))
        if (!e.is<nodes::Param>()) touch(e->attrs.text);
      for (const Output& o : l.outputs) touch(o.buffer);
      ++at;
    }
  for (Life& l : lives) {
    if (l.buffer->role == BufferRole::Input) l.first = 0;
    if (l.buffer->role != BufferRole::Temporary || l.last < 0) l.last = end;
    l.first = std::min(l.first, l.last);
  }
  return lives;
}

// Whoever writes nothing may have no kernel, so that the launch before it is the one in front.
void find_settled(Phase& phase) {
  for (size_t i = 1; i < phase.launches.size(); ++i) {
    Launch& l = phase.launches[i];
    const Launch& before = phase.launches[i - 1];
    const auto writes = [](const Launch& by, const std::string& name) {
      return std::any_of(by.outputs.begin(), by.outputs.end(), [&](const Output& o) { return o.buffer == name; });
    };
    if (std::all_of(before.outputs.begin(), before.outputs.end(),
                    [](const Output& o) { return o.value.shape().numel() == 0; }))
      continue;
    for (const Expr& e : operands_of(l))
      if (!e.is<nodes::Param>() && !writes(l, e->attrs.text) && !writes(before, e->attrs.text))
        l.settled.push_back(e->attrs.text);
  }
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

void find_settled(Plan& plan) {
  for (Phase& p : plan.phases) find_settled(p);
}

void lay_out_memory(Plan& plan) {
  std::vector<Life> lives = lives_of(plan);
  for (Life& l : lives) l.buffer->bytes = bytes_of(l.buffer->shape, l.buffer->dtype);
  std::stable_sort(lives.begin(), lives.end(),
                   [](const Life& a, const Life& b) { return a.buffer->bytes > b.buffer->bytes; });
  plan.arena_bytes = 0;
  std::vector<const Life*> placed;
  for (const Life& l : lives) {
    if (!l.buffer->in_arena()) continue;
    int64_t offset = 0;
    for (const Life* o : placed) {  // sorted by offset
      if (o->last < l.first || l.last < o->first) continue;
      if (o->buffer->offset >= offset + l.buffer->bytes) break;
      const int64_t behind = o->buffer->offset + o->buffer->bytes;
      offset = std::max(offset, (behind + kAlignment - 1) / kAlignment * kAlignment);
    }
    l.buffer->offset = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + l.buffer->bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &l,
                                   [](const Life* a, const Life* b) { return a->buffer->offset < b->buffer->offset; }),
                  &l);
  }
  plan.arena_bytes = (plan.arena_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace tenon
