#include "tenon/plan/rewrite.h"

#include <algorithm>
#include <map>
#include <optional>

#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"

namespace tenon {

Users::Users(std::span<const Expr> roots) {
  for (const Expr& r : roots) roots_.insert(r.get());
  for (const Expr& e : topological(roots))
    for (const Expr& x : e->in) {
      std::vector<Expr>& list = users_[x.get()];
      if (list.empty() || list.back() != e) list.push_back(e);
    }
}

const std::vector<Expr>& Users::of(const Expr& e) const {
  const auto it = users_.find(e.get());
  return it == users_.end() ? none_ : it->second;
}

Expr constant_row(const Expr& e) {
  const Expr x = e.is<nodes::Broadcast>() && e->rate == Rate::Constant ? e->in[0] : Expr();
  return x && x.shape().rank() == 1 && x.shape()[0] == e.shape().cols() ? x : Expr();
}

std::vector<Expr> fold_literals(Graph& g, std::span<const Expr> roots) {
  const Replace fold = [&g](const Expr& e, std::span<const Expr> in) -> Expr {
    if (e.is<nodes::StopGradient>()) return in[0];
    // What has no elements is not computed, so no launch that reads it can be fused with it.
    const auto computed = [](const Expr& x) { return x.shape().numel() == 0 && x->family() != Family::Leaf; };
    if (e.shape().numel() > 0 && std::ranges::any_of(in, computed)) {
      std::vector<Expr> parts(in.begin(), in.end());
      for (Expr& x : parts)
        if (computed(x)) x = cast(broadcast(constant(g, 0), x.shape()), x.dtype());
      return g.make(*e->type, parts, e->attrs);
    }
    const bool literal = e->family() == Family::Pointwise && !e->type->round &&
                         std::all_of(in.begin(), in.end(), [](const Expr& x) { return x.is<nodes::Constant>(); });
    if (!literal) return {};
    std::vector<double> x;
    for (const Expr& i : in) x.push_back(i->attrs.nums[0]);
    return constant(g, e->type->eval(x.data(), e->attrs.nums.data()));
  };
  return rebuild(g, roots, fold);
}

namespace {

// A factor after a linear layer: per row, the same for all layers of a group, or per column, stacked like the weights.
struct Scale {
  Expr value;
  bool of_columns = false;
};

// A linear layer with its scales, bias and cast, and the last of these nodes, which the rest of the model reads.
struct Layer {
  Expr linear;
  std::vector<Scale> scales = {};
  Expr bias = {}, tail;
  std::optional<DType> rounding = {};
};

// The scale that `factor` multiplies a layer's result by; without a value if it is not per row or per column.
Scale scale_of(const Expr& factor) {
  if (!factor.is<nodes::Broadcast>()) return {};
  const Expr& x = factor->in[0];
  if (constant_row(factor)) return {x, true};
  return x.shape().rank() == 0 || x.shape()[-1] == 1 ? Scale{x} : Scale{};
}

// The operand of the binary node `u` that is not `x`.
const Expr& other_operand(const Expr& u, const Expr& x) { return u->in[u->in[0] == x ? 1 : 0]; }

Layer layer_of(const Expr& linear, const Users& users) {
  Layer l{.linear = linear, .tail = linear};
  const auto only_user = [&users](const Expr& e) { return users.of(e).size() == 1 ? users.of(e)[0] : Expr(); };
  for (Expr u = only_user(l.tail); u && u.is<nodes::Mul>(); u = only_user(l.tail)) {
    const Scale s = scale_of(other_operand(u, l.tail));
    if (!s.value) break;
    l.scales.push_back(s);
    l.tail = u;
  }
  if (const Expr u = only_user(l.tail); u && u.is<nodes::Add>()) {
    l.bias = constant_row(other_operand(u, l.tail));
    if (l.bias) l.tail = u;
  }
  if (const Expr u = only_user(l.tail); u && u.is<nodes::Cast>()) {
    l.rounding = u.dtype();
    l.tail = u;
  }
  return l;
}

// Layers of one kind can be stacked: they read the same rows and process their results alike.
using Kind = std::vector<uint32_t>;
Kind kind_of(const Layer& l) {
  const auto type = [](DType t) { return static_cast<uint32_t>(t); };
  const Attrs& a = l.linear->attrs;
  Kind kind = {l.linear->in[0]->id, type(l.linear->in[1].dtype()), a.dtype ? 1 + type(*a.dtype) : 0};
  for (const Scale& s : l.scales)
    kind.insert(kind.end(), {1u + s.of_columns, s.of_columns ? type(s.value.dtype()) : s.value->id});
  kind.insert(kind.end(), {0u, l.bias ? 1 + type(l.bias.dtype()) : 0, l.rounding ? 1 + type(*l.rounding) : 0});
  return kind;
}

bool only_rearranged(const Expr& tail, const Users& users) {
  const auto& list = users.of(tail);
  return !list.empty() && std::all_of(list.begin(), list.end(), [](const Expr& u) {
    return u->family() == Family::View || u->family() == Family::Anchor;
  });
}

using Copy = std::function<Expr(const Expr&)>;

// The stacked layer of a group, over copies of its operands.
Expr stack(const std::vector<Layer>& group, const Copy& copy) {
  const auto joined = [&](const auto& part) {
    std::vector<Expr> parts;
    for (const Layer& l : group) parts.push_back(copy(part(l)));
    return concat(parts, 0);
  };
  const Layer& first = group[0];
  Expr y =
      with_operands(first.linear, {copy(first.linear->in[0]), joined([](const Layer& l) { return l.linear->in[1]; })});
  for (size_t i = 0; i < first.scales.size(); ++i)
    y = y * (first.scales[i].of_columns ? joined([i](const Layer& l) { return l.scales[i].value; })
                                        : copy(first.scales[i].value));
  if (first.bias) y = y + joined([](const Layer& l) { return l.bias; });
  return first.rounding ? cast(y, *first.rounding) : y;
}

}  // namespace

std::vector<Expr> merge_sibling_linears(Graph& g, std::span<const Expr> roots) {
  const Users users(roots);
  std::map<Kind, std::vector<Layer>> groups;
  for (const Expr& e : topological(roots)) {
    if (!e.is<nodes::Linear>() || e->in[1].shape().rank() != 2 || e->in[1]->rate != Rate::Constant) continue;
    if (e->rate == Rate::Constant) continue;  // another layer's weights may be computed from it
    Layer l = layer_of(e, users);
    if (users.is_root(l.tail) || !only_rearranged(l.tail, users)) continue;
    groups[kind_of(l)].push_back(std::move(l));
  }
  std::unordered_map<const Node*, std::pair<const std::vector<Layer>*, size_t>> tails;
  for (const auto& [key, group] : groups)
    for (size_t i = 0; group.size() > 1 && i < group.size(); ++i) tails[group[i].tail.get()] = {&group, i};

  Memo memo;
  std::unordered_map<const void*, Expr> stacked;
  Replace replace;
  const Copy copy = [&](const Expr& e) { return rebuild(g, e, replace, memo); };
  replace = [&](const Expr& e, std::span<const Expr>) -> Expr {
    const auto it = tails.find(e.get());
    if (it == tails.end()) return {};
    const auto& [group, index] = it->second;
    Expr& whole = stacked[group];
    if (!whole) whole = stack(*group, copy);
    int64_t begin = 0;
    for (size_t i = 0; i < index; ++i) begin += (*group)[i].linear.shape()[-1];
    return slice(whole, -1, begin, begin + (*group)[index].linear.shape()[-1]);
  };
  return rebuild(g, roots, replace, memo);
}

}  // namespace tenon
