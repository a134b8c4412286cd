#include "tenon/expr/vjp.h"

#include <unordered_set>

#include "tenon/expr/ops.h"

namespace tenon {
namespace {

Expr filled(Graph& g, double value, const Shape& shape) { return broadcast(constant(g, value), shape); }

// Gradients of 16-bit values are 16 bits wide, which halves the bytes stored and multiplied. Those of weights stay f32.
Expr typed(const Expr& gradient, const Expr& value) {
  const bool half = is_float(value.dtype()) && size_of(value.dtype()) == 2 && value->rate != Rate::Constant;
  return half ? cast(gradient, value.dtype()) : gradient;
}

// True for a product, perhaps seen through views: when several are added up, all but the last are stored.
bool is_product(Expr e) {
  while (e->family() == Family::View && e->in.size() == 1) e = e->in[0];
  return e->family() == Family::Anchor;
}

std::string operand_text(const Expr& x) { return std::string(name_of(x.dtype())) + x.shape().str(); }

std::vector<Expr> operand_gradients(const Expr& e, const Expr& g, const GradientRule& rule) {
  std::vector<Expr> grads = rule ? rule(e, g) : std::vector<Expr>();
  TENON_CHECK(Usage, !grads.empty() || e->type->vjp != nullptr, "gradients")
      << "the node " << print_node(e, operand_text) << " has no gradient rule";
  if (grads.empty()) grads = e->type->vjp(e, g);
  TENON_CHECK(Internal, grads.size() == e->in.size(), "gradients")
      << e->name() << " has " << e->in.size() << " operands but its rule gives " << grads.size() << " gradients";
  for (size_t i = 0; i < grads.size(); ++i)
    TENON_CHECK(Internal, !grads[i] || grads[i].shape() == e->in[i].shape(), "gradients")
        << e->name() << ": the gradient of operand " << i << " is " << grads[i].shape().str() << ", not "
        << e->in[i].shape().str();
  return grads;
}

// The sum of two paddings as one, if the second's operand starts along one axis where the first's ends; empty
// otherwise.
Expr joined_pads(const Expr& first, const Expr& second) {
  if (!first.is<nodes::Pad>() || !second.is<nodes::Pad>() || first.dtype() != second.dtype()) return {};
  const std::vector<int64_t>&f = first->attrs.ints, &s = second->attrs.ints;
  int axis = -1;
  int64_t low = 0, high = 0;
  for (int a = 0; a < first.shape().rank(); ++a) {
    const size_t i = 2 * static_cast<size_t>(a);
    if (!f[i] && !f[i + 1] && !s[i] && !s[i + 1]) continue;
    if (axis >= 0 || f[i] + first->in[0].shape()[a] != s[i]) return {};
    axis = a, low = f[i], high = s[i + 1];
  }
  if (axis < 0) return {};
  std::vector<Expr> parts;
  for (const Expr& x : {first->in[0], second->in[0]}) {
    const bool several = x.is<nodes::Concat>() && x->attrs.ints[0] == axis;
    const std::span<const Expr> more = several ? std::span(x->in) : std::span(&x, 1);
    parts.insert(parts.end(), more.begin(), more.end());
  }
  return pad(concat(parts, axis), axis, low, high);
}

// Gradients of adjacent slices become one concatenation, however many there are, instead of a sum of padded tensors.
Expr added(const Expr& a, const Expr& b) {
  for (const Expr& one : {joined_pads(a, b), joined_pads(b, a)})
    if (one) return one;
  return a + b;
}

}  // namespace

std::vector<Expr> gradients(const Expr& y, const Expr& seed, std::span<const Expr> wrt, const GradientRule& rule) {
  for (const Expr& e : wrt)
    TENON_CHECK(Usage, &e.graph() == &y.graph(), "gradients")
        << print_node(e, operand_text) << " is from another graph";
  TENON_CHECK(Usage, !seed || seed.shape() == y.shape(), "gradients")
      << "the seed has shape " << seed.shape().str() << ", expected the result's shape " << y.shape().str();
  // Only nodes that depend on a wanted node take part: a missing rule elsewhere does no harm. Integers have no slope.
  std::unordered_set<const Node*> wanted, passing;
  for (const Expr& e : wrt) wanted.insert(e.get());
  const auto on_path = [&](const Expr& e) { return wanted.contains(e.get()) || passing.contains(e.get()); };
  const std::vector<Expr> order = topological(std::array{y});
  for (const Expr& e : order) {
    const bool ends = !is_float(e.dtype()) || !e.shape().numel() || e.is<nodes::StopGradient>();
    if (!ends && std::ranges::any_of(e->in, on_path)) passing.insert(e.get());
  }

  std::unordered_map<const Node*, Expr> total;
  total[y.get()] = seed ? seed : filled(y.graph(), 1, y.shape());
  for (size_t n = order.size(); n-- > 0;) {
    const Expr& e = order[n];
    const auto it = total.find(e.get());
    if (it == total.end() || !passing.contains(e.get())) continue;
    const std::vector<Expr> grads = operand_gradients(e, typed(it->second, e), rule);
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i] || !on_path(e->in[i])) continue;
      const auto as_stored = [&](const Expr& g) { return is_product(g) ? typed(g, e->in[i]) : g; };
      Expr& sum = total[e->in[i].get()];
      sum = sum ? added(as_stored(sum), as_stored(grads[i])) : grads[i];
    }
  }
  std::vector<Expr> out;
  for (const Expr& e : wrt) {
    const auto it = total.find(e.get());
    out.push_back(it != total.end() ? cast(it->second, DType::F32) : filled(y.graph(), 0, e.shape()));
  }
  return out;
}

}  // namespace tenon
