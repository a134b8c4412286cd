#include "tenon/expr/node_type.h"

#include "tenon/expr/ops.h"

namespace tenon {
namespace {

constexpr auto kTypes = []<class... T>(TypeList<T...>) {
  return std::array<const NodeType*, sizeof...(T)>{&detail::kNodeType<T>...};
}(AllNodes{});

// Divides g equally among the candidates that attain the extreme.
Expr share_among_ties(const Expr& node, const Expr& g, const Expr& candidates) {
  const Expr hit = equal(candidates, node);
  return hit * (g / sum(hit, static_cast<ReduceOver>(node->attrs.ints[0])));
}

}  // namespace

std::span<const NodeType* const> node_types() { return kTypes; }

const NodeType* find_node_type(std::string_view name) {
  for (const NodeType* t : kTypes)
    if (t->name == name) return t;
  return nullptr;
}

void Reduce::infer(std::span<const Expr>, const Attrs& attrs, Shape& shape) {
  TENON_CHECK(Usage, attrs.ints.size() == 1 && (attrs.ints[0] == 0 || attrs.ints[0] == 1), "reduce")
      << "needs one axis code: 0 for the last axis, 1 for the inner axes";
  if (attrs.ints[0] == static_cast<int64_t>(ReduceOver::Last)) {
    TENON_CHECK(Usage, shape.rank() >= 1, "reduce") << "a scalar has no axis to reduce";
    shape[-1] = 1;
  } else {
    TENON_CHECK(Usage, shape.rank() >= 3, "reduce") << "needs axes between the first and the last, got " << shape.str();
    for (int a = 1; a < shape.rank() - 1; ++a) shape[a] = 1;
  }
}

double Reduce::count(const Node& n) {
  double count = 1;
  for (int a = 0; a < n.shape.rank(); ++a)  // for a kept axis of extent 1 this is a factor of 1
    if (n.shape[a] == 1) count *= static_cast<double>(n.in[0].shape()[a]);
  return count;
}

std::vector<Expr> nodes::ReduceMax::vjp(const Expr& node, const Expr& g) {
  return {share_among_ties(node, g, node->in[0])};
}

std::vector<Expr> nodes::AbsMax::vjp(const Expr& node, const Expr& g) {
  const Expr& x = node->in[0];
  const Expr sign = where(less(x, -x), constant(g.graph(), -1), constant(g.graph(), 1));
  return {share_among_ties(node, g, abs(x)) * sign};
}

std::vector<Expr> broadcast_operands(std::span<const Expr> in) {
  Shape common = in[0].shape();
  for (const Expr& e : in) common = broadcast_shapes(common, e.shape());
  std::vector<Expr> out;
  for (const Expr& e : in) out.push_back(broadcast(e, common));
  return out;
}

Expr sum_to_shape(const Expr& g, const Shape& shape) {
  const int lead = g.shape().rank() - shape.rank();
  // A concatenation along an axis that is not summed: sum each part separately.
  const int joined = g.is<nodes::Concat>() ? static_cast<int>(g->attrs.ints[0]) - lead : -1;
  if (joined >= 0 && shape[joined] == g.shape()[joined + lead]) {
    std::vector<Expr> parts;
    for (const Expr& x : g->in) {
      Shape of_part = shape;
      of_part[joined] = x.shape()[joined + lead];
      parts.push_back(sum_to_shape(x, of_part));
    }
    return concat(parts, joined);
  }
  const int64_t columns = shape.rank() ? shape[-1] : 1;
  if (columns > 1 && columns == g.shape().cols() && columns == shape.numel() && g.shape().rows() > 1)
    return reshape(sum(reshape(g, {1, g.shape().rows(), columns}), ReduceOver::Inner), shape);
  // One axis at a time: move it last, sum it, then drop it or keep it with extent 1.
  Expr out = g;
  for (int a = 0; a < g.shape().rank(); ++a) {
    const int64_t kept = a < lead ? 1 : shape[a - lead];
    if (kept != out.shape()[a]) out = with_axis_last(out, a, [](const Expr& x) { return sum(x); });
  }
  return reshape(out, shape);
}

}  // namespace tenon
