// Records where readers outside a launch are computed: fused into another anchor's launch, or refused.
#include <algorithm>

#include "tenon/plan/partition.h"

namespace tenon {

// Records every node that `launch` computes for `values`, before these count as being in memory.
void Partitioner::remember_places(const Launch& launch, const std::vector<Expr>& values) {
  Expr anchor;
  const auto walk = [&](std::vector<Expr> stack, const std::string& hole) {
    walk_below(std::move(stack), [&](const Expr& e) {
      if (e->family() == Family::Leaf || buffer_of_.contains(e.get())) return false;
      places_[e.get()].push_back({launch.name, hole});
      if (e->family() == Family::Anchor) anchor = e;
      return e->family() != Family::Anchor;
    });
  };
  walk(values, "out");
  if (!anchor) return;
  const std::vector<std::string_view>& holes = skeleton(launch.skeleton).holes;
  with_anchor_.emplace(launch.name, holes);
  for (size_t i = 0; i < anchor->in.size(); ++i)
    walk({anchor->in[i]}, i < holes.size() ? std::string(holes[i]) : std::to_string(i));
}

// An anchor reads the value through its operand's hole, wherever else the value is fused.
std::vector<Place> Partitioner::places_of(const Neighbour& n) const {
  const auto found = places_.find(n.reader.get());
  std::vector<Place> out = found == places_.end() ? std::vector<Place>{} : found->second;
  if (n.reader->family() != Family::Anchor) return out;
  for (Place& place : out) {
    const std::span<const std::string_view> holes = with_anchor_.at(place.launch);
    for (size_t i = 0; i < std::min(holes.size(), n.reader->in.size()); ++i)
      if (n.reader->in[i] == n.value) place.hole = holes[i];
  }
  return out;
}

void Partitioner::place_neighbours() {
  for (Neighbour& n : neighbours_) {
    n.apart.into = places_of(n);
    if (n.reader->family() == Family::Anchor)
      n.apart.kind = Apart::Anchor;
    else if (std::ranges::none_of(n.apart.into, [&](const Place& p) { return with_anchor_.contains(p.launch); }))
      n.apart.kind = Apart::Refused;
    plan_.phases[n.phase].launches[n.launch].apart.push_back(std::move(n.apart));
  }
  neighbours_.clear();
}

}  // namespace tenon
