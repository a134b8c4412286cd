#include "tenon/oracle/oracle.h"

#include "tenon/expr/ops.h"
#include "tenon/expr/walk.h"

namespace tenon {
namespace {

// Temporaries with more elements are dropped after their last use.
constexpr size_t kKeptElements = 1 << 16;

using Operands = std::vector<const std::vector<double>*>;

std::vector<double> eval_pointwise(const Node& n, const Operands& in) {
  std::vector<double> out(static_cast<size_t>(n.shape.numel()));
  double x[8] = {};
  TENON_CHECK(Internal, in.size() <= std::size(x), "oracle") << "pointwise node of " << in.size() << " operands";
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t k = 0; k < in.size(); ++k) x[k] = (*in[k])[i];
    out[i] = n.type->eval(x, n.attrs.nums.data());
  }
  if (n.type->round)
    for (double& v : out) v = n.type->round(n.attrs, v);
  return out;
}

std::vector<double> eval_view(const Node& n, const Operands& in) {
  std::vector<double> out(static_cast<size_t>(n.shape.numel()));
  const auto number_at = [&](int operand, const Coord& at) {
    const size_t k = static_cast<size_t>(operand);
    return static_cast<int64_t>(in[k]->at(static_cast<size_t>(n.in[k].shape().ravel(at))));
  };
  const size_t last = static_cast<size_t>(std::max(n.shape.rank() - 1, 0));
  for (size_t i = 0; i < out.size();) {
    Walk walk{n.shape.unravel(static_cast<int64_t>(i)), {}, 1};
    if (n.shape.rank()) {
      walk.run = n.shape[-1] - walk.at[last];
      walk.step[last] = 1;
    }
    const int operand = follow(n, walk, number_at);
    if (operand >= 0) {
      const size_t k = static_cast<size_t>(operand);
      const int64_t from = n.in[k].shape().ravel(walk.at), step = n.in[k].shape().ravel(walk.step);
      for (int64_t r = 0; r < walk.run; ++r)
        out[i + static_cast<size_t>(r)] = in[k]->at(static_cast<size_t>(from + r * step));
    }
    i += static_cast<size_t>(walk.run);
  }
  return out;
}

// Evaluates the node in other nodes, over leaves which stand in for its operands, without rounding.
std::vector<double> eval_apart(const Node& n, const Operands& in) {
  Graph g;
  std::vector<Expr> places;
  for (const Expr& x : n.in) places.push_back(input(g, std::to_string(places.size()), x.dtype(), x.shape()));
  Attrs exact = n.attrs;
  exact.dtype.reset();
  const Expr other = n.type->apart(g.make(*n.type, places, std::move(exact)));
  return Oracle([&](const Expr& leaf) { return *in[std::stoul(leaf->attrs.text)]; }).eval(other);
}

std::vector<double> eval_reduce(const Node& n, const Operands& in) {
  // Both modes reduce the middle axis of [outer, count, inner].
  const Shape& from = n.in[0].shape();
  const bool last = n.attrs.ints[0] == static_cast<int64_t>(ReduceOver::Last);
  const size_t inner = last ? 1 : static_cast<size_t>(from[-1]);
  std::vector<double> out(static_cast<size_t>(n.shape.numel())), x(static_cast<size_t>(Reduce::count(n)));
  for (size_t o = 0; o < out.size(); ++o) {
    const double* first = in[0]->data() + o / inner * inner * x.size() + o % inner;
    for (size_t k = 0; k < x.size(); ++k) x[k] = first[k * inner];
    out[o] = n.type->reduce(x);
  }
  return out;
}

std::vector<double> eval_anchor(const Node& n, const Operands& in) {
  std::vector<double> out(static_cast<size_t>(n.shape.numel()));
  std::vector<const double*> data;
  for (const std::vector<double>* x : in) data.push_back(x->data());
  n.type->reference(n, data, out.data());
  return out;
}

}  // namespace

Oracle::Oracle(std::map<std::string, HostTensor> leaves) {
  auto held = std::make_shared<const std::map<std::string, HostTensor>>(std::move(leaves));
  leaves_ = [held](const Expr& leaf) {
    const auto it = held->find(leaf->attrs.text);
    TENON_CHECK(Usage, it != held->end(), "oracle") << "no value for the leaf '" << leaf->attrs.text << "'";
    TENON_CHECK(Usage, it->second.shape == leaf.shape(), "oracle")
        << "leaf '" << leaf->attrs.text << "' expects " << leaf.shape().str() << ", got " << it->second.shape.str();
    return it->second.values();
  };
}

std::vector<double> Oracle::leaf_values(const Expr& e) const {
  if (e.is<nodes::Constant>()) return {e->attrs.nums[0]};
  if (e.is<nodes::Iota>()) {
    std::vector<double> out(static_cast<size_t>(e.shape().numel()));
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(i);
    return out;
  }
  Graph g;
  const Expr computed = e.is<nodes::Param>() ? computation_of(g, e->attrs.text) : Expr();
  std::vector<double> out = computed ? Oracle(leaves_).eval(cast(computed, e.dtype())) : leaves_(e);
  TENON_CHECK(Usage, static_cast<int64_t>(out.size()) == e.shape().numel(), "oracle")
      << "leaf '" << e->attrs.text << "' expects " << e.shape().str() << ", got " << out.size() << " values";
  return out;
}

std::vector<double> Oracle::node_values(const Expr& e) {
  Operands in;
  for (const Expr& x : e->in) in.push_back(known_.at(x.get()).get());
  if (e->type->apart) return eval_apart(*e, in);
  switch (e->family()) {
    case Family::Leaf:
      return leaf_values(e);
    case Family::Pointwise:
      return eval_pointwise(*e, in);
    case Family::View:
      return eval_view(*e, in);
    case Family::Reduce:
      return eval_reduce(*e, in);
    case Family::Anchor:
    case Family::Sink:
      break;
  }
  return eval_anchor(*e, in);
}

Oracle::Values Oracle::compute(const Expr& root) {
  // Walk only unknown nodes, counting uses: nothing below a known value is needed.
  std::vector<Expr> order;
  std::unordered_map<const Node*, int64_t> uses;
  walk({root}, [&](const Expr& e) -> std::span<const Expr> {
    if (known_.contains(e.get())) return {};
    order.push_back(e);
    for (const Expr& x : e->in) ++uses[x.get()];
    return e->in;
  });
  std::ranges::sort(order, {}, [](const Expr& e) { return e->id; });  // operands have smaller ids
  std::vector<const Node*> kept;
  for (const auto& [node, value] : known_) kept.push_back(node);
  std::ranges::sort(kept);
  for (const Expr& e : order) {
    known_[e.get()] = std::make_shared<const std::vector<double>>(node_values(e));
    for (const Expr& x : e->in) {
      const bool drop = --uses[x.get()] == 0 && known_.at(x.get())->size() > kKeptElements;
      if (drop && !std::ranges::binary_search(kept, x.get())) known_.erase(x.get());
    }
  }
  return known_.at(root.get());
}

std::vector<double> Oracle::eval(const Expr& e) {
  TENON_CHECK(Usage, static_cast<bool>(e), "oracle") << "an empty expression has no value";
  return *compute(e);
}

}  // namespace tenon
