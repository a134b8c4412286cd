#include "tenon/plan/rewrite.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>

#include "tenon/expr/ops.h"

namespace tenon {

Users::Users(std::span<const Expr> roots) {
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

std::vector<Expr> fold_literals(Graph& g, std::span<const Expr> roots) {
  const Replace fold = [&g](const Expr& e, std::span<const Expr> in) -> Expr {
    const bool literal = e->family() == Family::Pointwise && !e->type->round &&
                         std::all_of(in.begin(), in.end(), [](const Expr& x) { return x.is<nodes::Constant>(); });
    if (!literal) return {};
    std::vector<double> x;
    for (const Expr& i : in) x.push_back(i->attrs.nums[0]);
    return constant(g, e->type->eval(x.data(), e->attrs.nums.data()));
  };
  std::vector<Expr> out;
  Memo memo;
  for (const Expr& r : roots) out.push_back(rebuild(g, r, fold, memo));
  return out;
}

namespace {

// A linear layer with what belongs to it: its bias, a cast, and the node whose value the rest of the model reads.
struct Layer {
  Expr linear, bias, tail;
  bool has_cast = false;
  DType cast = DType::F32;
};

bool constant_vector(const Expr& e) { return e->rate == Rate::Constant && e.shape().rank() == 1; }

Layer layer_of(const Expr& linear, const Users& users) {
  Layer l{linear, {}, linear};
  const auto only_user = [&users](const Expr& e) { return users.of(e).size() == 1 ? users.of(e)[0] : Expr(); };
  if (const Expr u = only_user(l.tail); u && u.is<nodes::Add>()) {
    const Expr other = u->in[0] == l.tail ? u->in[1] : u->in[0];
    if (other.is<nodes::Broadcast>() && constant_vector(other->in[0])) {
      l.bias = other->in[0];
      l.tail = u;
    }
  }
  if (const Expr u = only_user(l.tail); u && u.is<nodes::Cast>()) {
    l.has_cast = true;
    l.cast = u.dtype();
    l.tail = u;
  }
  return l;
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
  std::vector<Expr> weights, biases;
  for (const Layer& l : group) {
    weights.push_back(copy(l.linear->in[1]));
    if (l.bias) biases.push_back(copy(l.bias));
  }
  Expr y = linear(copy(group[0].linear->in[0]), concat(weights, 0));
  if (!biases.empty()) y = y + concat(biases, 0);
  return group[0].has_cast ? cast(y, group[0].cast) : y;
}

}  // namespace

std::vector<Expr> merge_sibling_linears(Graph& g, std::span<const Expr> roots) {
  const Users users(roots);
  const std::unordered_set<const Node*> results = [&] {
    std::unordered_set<const Node*> set;
    for (const Expr& r : roots) set.insert(r.get());
    return set;
  }();
  // Operand, whether there is a bias and a cast, and their types and the weights'.
  using Key = std::tuple<uint32_t, bool, DType, bool, DType, DType>;
  std::map<Key, std::vector<Layer>> groups;
  for (const Expr& e : topological(roots)) {
    if (!e.is<nodes::Linear>() || e->in[1].shape().rank() != 2 || e->in[1]->rate != Rate::Constant) continue;
    const Layer l = layer_of(e, users);
    if (results.contains(l.tail.get()) || !only_rearranged(l.tail, users)) continue;
    const DType bias = l.bias ? l.bias.dtype() : DType::F32;
    groups[{e->in[0]->id, static_cast<bool>(l.bias), bias, l.has_cast, l.cast, e->in[1].dtype()}].push_back(l);
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
  std::vector<Expr> out;
  for (const Expr& r : roots) out.push_back(copy(r));
  return out;
}

}  // namespace tenon
