// Expressions for tenon.fuse. Nodes are made by name from the registry, so new ones are available automatically. (This
// is also the only way: nodes are identified by the address of their type, and this separately compiled module would
// have its own copy.)
#include "apps/python/graph.h"
#include "tenon/core/error.h"
#include "tenon/expr/node_type.h"
#include "tenon/expr/vjp.h"
#include "tenon/nn/norm.h"

namespace tenon::python {

Expr make_node(std::string_view name, std::span<const Expr> in, const Attrs& attrs) {
  const NodeType* type = find_node_type(name);
  const std::string where(name);
  TENON_CHECK(Usage, type && type->family != Family::Leaf && type->family != Family::Sink, where)
      << "is not an operation of expressions";
  TENON_CHECK(Usage, !in.empty() && (type->arity < 0 || in.size() == static_cast<size_t>(type->arity)), where)
      << "expected " << type->arity << " operands, got " << in.size();
  if (type->family != Family::Pointwise) return in[0].graph().make(*type, in, attrs);
  TENON_CHECK(Usage, attrs.nums.size() == static_cast<size_t>(type->num_params), where)
      << "expected " << type->num_params << " numbers, got " << attrs.nums.size();
  return in[0].graph().make(*type, broadcast_operands(in), attrs);
}

namespace {

Value make(const std::string& name, const std::vector<Value>& operands, std::vector<int64_t> ints,
           std::vector<double> nums, const std::optional<std::vector<int64_t>>& dims,
           const std::optional<std::string>& dtype) {
  Attrs attrs;
  attrs.ints = std::move(ints);
  attrs.nums = std::move(nums);
  if (dims) attrs.dims = Shape(std::span<const int64_t>(*dims));
  if (dtype) attrs.dtype = parse_dtype(*dtype);
  std::vector<Expr> in;
  for (const Value& v : operands) in.push_back(v.of(operands[0]));
  return {make_node(name, in, attrs), operands.empty() ? nullptr : operands[0].graph};
}

std::vector<Value> gradients_of(const Value& y, const std::optional<Value>& seed, const std::vector<Value>& wrt) {
  std::vector<Expr> leaves;
  for (const Value& v : wrt) leaves.push_back(v.of(y));
  std::vector<Value> out;
  for (const Expr& e : gradients(y.expr, seed ? seed->of(y) : Expr(), leaves)) out.push_back({e, y.graph});
  return out;
}

// The values with `by` in place of the leaves.
std::vector<Value> substituted(const std::vector<Value>& values, const std::vector<Value>& leaves,
                               const std::vector<Value>& by) {
  TENON_CHECK(Internal, leaves.size() == by.size(), "substitute") << "expected as many expressions as leaves";
  Memo memo;
  for (size_t i = 0; i < leaves.size(); ++i) memo[leaves[i].expr.get()] = by[i].of(leaves[i]);
  std::vector<Value> out;
  for (const Value& v : values) out.push_back({rebuild(v.expr.graph(), v.expr, memo), v.graph});
  return out;
}

// (name, operands, numbers) of every pointwise node that is an ordinary function.
nb::list pointwise_names() {
  nb::list out;
  for (const NodeType* t : node_types())
    if (t->family == Family::Pointwise && !t->round)
      out.append(nb::make_tuple(std::string(t->name), t->arity, t->num_params));
  return out;
}

std::vector<std::string> reduction_names() {
  std::vector<std::string> out;
  for (const NodeType* t : node_types())
    if (t->family == Family::Reduce) out.emplace_back(t->name);
  return out;
}

// Names of the nodes with a gradient rule, of any family.
std::vector<std::string> differentiable_names() {
  std::vector<std::string> out;
  for (const NodeType* t : node_types())
    if (t->vjp) out.emplace_back(t->name);
  return out;
}

}  // namespace

void bind_expressions(nb::module_& m) {
  nb::class_<Graph>(m, "Graph")
      .def(nb::new_([] { return std::make_shared<Graph>(); }))
      .def("constant",
           [](const std::shared_ptr<Graph>& g, double v) {
             return Value{constant(*g, v), g};
           })
      .def("input",
           [](const std::shared_ptr<Graph>& g, std::string name, const std::string& dtype,
              const std::vector<int64_t>& shape) {
             return Value{input(*g, std::move(name), parse_dtype(dtype), Shape(shape)), g};
           })
      .def("scalar",
           [](const std::shared_ptr<Graph>& g, std::string name) {
             return Value{scalar(*g, std::move(name)), g};
           })
      .def("param", [](const std::shared_ptr<Graph>& g, std::string name, const std::vector<int64_t>& shape) {
        return Value{param(*g, std::move(name), DType::F32, Shape(shape)), g};
      });
  nb::class_<Value>(m, "Value")
      .def_prop_ro("shape",
                   [](const Value& v) {
                     const Shape& s = v.expr.shape();
                     return nb::tuple(nb::cast(std::vector<int64_t>(s.begin(), s.end())));
                   })
      .def_prop_ro("dtype", [](const Value& v) { return std::string(name_of(v.expr.dtype())); })
      .def("__eq__", [](const Value& a, const Value& b) { return a.expr == b.expr; })
      .def("__hash__", [](const Value& v) { return reinterpret_cast<uintptr_t>(v.expr.get()) >> 4; })
      .def("__repr__", [](const Value& v) { return print(v.expr); });
  m.def("make", &make, nb::arg("name"), nb::arg("operands"), nb::arg("ints") = std::vector<int64_t>(),
        nb::arg("nums") = std::vector<double>(), nb::arg("dims") = nb::none(), nb::arg("dtype") = nb::none());
  m.def(
      "group_norm",
      [](const Value& x, int64_t groups, const Value& weight, const Value& bias, double eps) {
        TENON_CHECK(Usage, x.expr.shape().rank() > 1, "group_norm")
            << "expected samples and channels, got " << x.expr.shape().str();
        return Value{nn::group_norm(x.expr, {groups, eps}, weight.of(x), bias.of(x)), x.graph};
      },
      nb::arg("x"), nb::arg("groups"), nb::arg("weight"), nb::arg("bias"), nb::arg("eps"));
  m.def("gradients", &gradients_of, nb::arg("y"), nb::arg("seed").none(), nb::arg("wrt"));
  m.def("substitute", &substituted, nb::arg("values"), nb::arg("leaves"), nb::arg("by"));
  m.def("pointwise_names", &pointwise_names);
  m.def("reduction_names", &reduction_names);
  m.def("differentiable_names", &differentiable_names);
}

}  // namespace tenon::python
