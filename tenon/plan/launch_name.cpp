// Names launches after the weights they read or the launch they follow.
#include <algorithm>

#include "tenon/expr/ops.h"
#include "tenon/plan/partition.h"

namespace tenon {
namespace {

std::string without_suffix(const std::string& name) { return name.substr(0, name.rfind('.')); }

// "a.b.q" + "a.b.k" -> "a.b.q+k"; many, or with several parents: their kinds and the first one's parent, as in
// "q+k of 32 siblings from a.b"
std::string joined(const std::vector<std::string>& names) {
  constexpr size_t kSpelledOut = 4;
  std::vector<std::string> kinds;
  for (const std::string& name : names) {
    std::string kind = name.substr(name.rfind('.') + 1);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(std::move(kind));
  }
  const auto sibling = [&](const std::string& n) { return without_suffix(n) == without_suffix(names[0]); };
  const bool few = names.size() <= kSpelledOut && std::ranges::all_of(names, sibling);
  std::string out = few ? names[0] : kinds[0];
  for (size_t i = 1; i < std::min(kinds.size(), kSpelledOut); ++i) out += "+" + kinds[i];
  if (few) return out;
  if (kinds.size() > kSpelledOut) out += "+..";
  return out + " of " + std::to_string(names.size()) + " siblings from " + without_suffix(names[0]);
}

}  // namespace

// Names of parameters, except of scales and products folded into them.
std::vector<std::string> Partitioner::weights_below(const Expr& value) {
  std::vector<std::string> out;
  for (const Expr& e : topological(std::array{value}))
    if (e.is<nodes::Param>() && e.shape().rank() > 1 && !is_computed(e)) out.push_back(without_suffix(e->attrs.text));
  return out;
}

std::string Partitioner::launch_name(const Launch& launch) {
  std::vector<std::string> weights;
  std::string base = launch.skeleton;
  const Expr anchor = anchor_of(launch);
  if (anchor && !multiplies_heads(anchor)) {
    weights = weights_below(anchor->in[1]);
    for (const Expr& e : topological(std::array{anchor->in[1]}))
      if (const auto it = weights_of_buffer_.find(e->attrs.text); is_memory_leaf(e) && it != weights_of_buffer_.end())
        weights.insert(weights.end(), it->second.begin(), it->second.end());
  } else if (anchor) {
    for (const Expr& e : topological(std::array{anchor->in[0]}))
      if (const auto it = launch_of_buffer_.find(e->attrs.text); is_memory_leaf(e) && it != launch_of_buffer_.end())
        base = without_suffix(it->second) + "." + launch.skeleton;
  } else if (phase_->rate == Rate::Constant) {
    base = "constants";
  } else {
    base = launch.outputs[0].buffer;
    for (const Expr& e : operands_of(launch))
      if (e.is<nodes::Param>() && weights.empty()) weights.push_back(without_suffix(e->attrs.text));
  }
  if (!weights.empty()) base = joined(weights);
  const int uses = ++name_uses_[base];
  return uses == 1 ? base : base + "#" + std::to_string(uses);
}

}  // namespace tenon
