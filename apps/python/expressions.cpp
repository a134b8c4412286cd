// Expressions for tenon.fuse. Pointwise nodes and reductions are taken from the registry of nodes, so that a new one is
// known here by itself; views and anchors, whose arguments differ, have a line each.
#include "array.h"
#include "graph.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::python {
namespace {

const NodeType& type_of(const std::string& name, Family family) {
  const NodeType* type = find_node_type(name);
  TENON_CHECK(Usage, type && type->family == family, name) << "is no operation of this kind";
  return *type;
}

Value apply(const std::string& name, const std::vector<Value>& operands, std::vector<double> numbers) {
  const NodeType& type = type_of(name, Family::Pointwise);
  TENON_CHECK(Usage, static_cast<int>(operands.size()) == type.arity, name)
      << "expected " << type.arity << " operands, got " << operands.size();
  TENON_CHECK(Usage, static_cast<int>(numbers.size()) == type.num_params, name)
      << "expected " << type.num_params << " numbers, got " << numbers.size();
  detail::PointwiseArgs args;
  for (const Value& v : operands) args.add(v.of(operands[0]));
  args.attrs.nums = std::move(numbers);
  return operands[0].with(detail::make_pointwise(type, std::move(args)));
}

Value reduce_last(const std::string& name, const Value& x) {
  Attrs attrs;
  attrs.ints = {static_cast<int64_t>(ReduceOver::Last)};
  return x.with(x.graph->make(type_of(name, Family::Reduce), std::array{x.expr}, attrs));
}

Value concat_values(const std::vector<Value>& parts, int axis) {
  TENON_CHECK(Usage, !parts.empty(), "concat") << "expected at least one value";
  std::vector<Expr> in;
  for (const Value& v : parts) in.push_back(v.of(parts[0]));
  return parts[0].with(concat(in, axis));
}

Value attend(const Value& q, const Value& k, const Value& v, double scale, bool causal) {
  return q.with(attention(q.expr, k.of(q), v.of(q), scale, causal));
}

Value convolve(const Value& x, const Value& w, int64_t stride, std::array<int64_t, 4> pads) {
  return x.with(conv2d(x.expr, w.of(x), stride, pads));
}

// (name, operands, numbers) of every pointwise node that is a plain function, and names of reductions.
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

Shape shape_from(const std::vector<int64_t>& dims) { return Shape(std::span<const int64_t>(dims)); }

void bind_views(nb::class_<Value>& c) {
  c.def("reshape",
        [](const Value& x, const std::vector<int64_t>& dims) { return x.with(reshape(x.expr, shape_from(dims))); })
      .def("broadcast",
           [](const Value& x, const std::vector<int64_t>& dims) { return x.with(broadcast(x.expr, shape_from(dims))); })
      .def("permute",
           [](const Value& x, std::vector<int64_t> axes) { return x.with(permute(x.expr, std::move(axes))); })
      .def("slice",
           [](const Value& x, int axis, int64_t begin, int64_t end) { return x.with(slice(x.expr, axis, begin, end)); })
      .def("pad", [](const Value& x, std::vector<int64_t> counts) { return x.with(pad(x.expr, std::move(counts))); })
      .def("gather", [](const Value& x, const Value& index) { return x.with(gather(x.expr, index.of(x))); })
      .def("resize",
           [](const Value& x, int64_t height, int64_t width) { return x.with(resize_nearest(x.expr, height, width)); })
      .def("linear", [](const Value& x, const Value& w) { return x.with(linear(x.expr, w.of(x))); })
      .def("matmul", [](const Value& a, const Value& b) { return a.with(matmul(a.expr, b.of(a))); })
      .def("attention", &attend)
      .def("conv2d",
           [](const Value& x, const Value& w, int64_t stride, std::vector<int64_t> pads) {
             TENON_CHECK(Usage, pads.size() == 4, "conv2d") << "expected four paddings, got " << pads.size();
             return convolve(x, w, stride, {pads[0], pads[1], pads[2], pads[3]});
           })
      .def("cast", [](const Value& x, const std::string& dtype) { return x.with(cast(x.expr, parse_dtype(dtype))); })
      .def("round", [](const Value& x, const std::string& dtype) { return x.with(round(x.expr, parse_dtype(dtype))); });
}

}  // namespace

void bind_expressions(nb::module_& m) {
  nb::class_<Graph>(m, "Graph")
      .def(nb::new_([] { return std::make_shared<Graph>(); }))
      .def("constant",
           [](std::shared_ptr<Graph> g, double v) {
             return Value{constant(*g, v), g};
           })
      .def("scalar",
           [](std::shared_ptr<Graph> g, std::string name) {
             return Value{scalar(*g, std::move(name)), g};
           })
      .def("iota", [](std::shared_ptr<Graph> g, int64_t n) {
        return Value{iota(*g, n), g};
      });
  nb::class_<Value> value(m, "Value");
  value
      .def_prop_ro("shape",
                   [](const Value& v) {
                     return nb::tuple(nb::cast(std::vector<int64_t>(v.expr.shape().begin(), v.expr.shape().end())));
                   })
      .def_prop_ro("dtype", [](const Value& v) { return std::string(name_of(v.expr.dtype())); })
      .def("__eq__", [](const Value& a, const Value& b) { return a.expr == b.expr; })
      .def("__hash__", [](const Value& v) { return reinterpret_cast<uintptr_t>(v.expr.get()); })
      .def("__repr__", [](const Value& v) { return print(v.expr); });
  bind_views(value);
  m.def("apply", &apply, nb::arg("name"), nb::arg("operands"), nb::arg("numbers"));
  m.def("reduce_last", &reduce_last, nb::arg("name"), nb::arg("x"));
  m.def("concat", &concat_values, nb::arg("parts"), nb::arg("axis"));
  m.def("pointwise_names", &pointwise_names);
  m.def("reduction_names", &reduction_names);
}

}  // namespace tenon::python
