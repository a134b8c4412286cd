// What a node struct must supply, by family, and its type-erased record. A node is one struct in expr/nodes/, derived
// from its family's template and announced with NODE(Struct, function). The record is filled at compile time: a node
// without a member that its family needs does not compile.
#pragma once
#ifdef TENON_DEVICE
#include "tenon/expr/node_bodies.h"
#else
#include <array>
#include <concepts>
#include <utility>

#include "tenon/core/error.h"
#include "tenon/core/hd.h"
#include "tenon/core/type_list.h"
#include "tenon/expr/expr.h"
#include "tenon/expr/index_algebra.h"

namespace tenon {

enum class ReduceOver : int64_t { Last = 0, Inner = 1 };  ///< last axis; or all axes but the first and the last

/// The type-erased record of a node struct.
struct NodeType {
  std::string_view name;
  Family family = Family::Leaf;
  int arity = 0;       ///< number of operands; -1: one or more
  int num_params = 0;  ///< numbers in attrs.nums that a pointwise body takes
  /// Shape (`shape` starts as the first operand's) and element type of the result. infer throws Error(Usage).
  void (*infer)(std::span<const Expr> in, const Attrs& attrs, Shape& shape) = nullptr;
  DType (*dtype)(std::span<const Expr> in, const Attrs& attrs) = nullptr;
  double (*eval)(const double* x, const double* p) = nullptr;  ///< Pointwise, in fp64
  double (*round)(const Attrs& attrs, double x) = nullptr;     ///< Pointwise rounding points, else null
  /// View: where element `c` of the result is found.
  void (*map)(const Node& n, IndexAlgebra& a, Indices c) = nullptr;
  Expr (*inverse)(const Node& n, const Expr& y) = nullptr;  ///< View that is a bijection: its inverse view
  double (*reduce)(std::span<const double> x) = nullptr;    ///< Reduce, in fp64
  /// Reductions that follow from the number of elements, their mean and m2 (the sum of squared deviations from the
  /// mean); else null.
  double (*reduce_of_moments)(double n, double mean, double m2) = nullptr;
  /// Sink, which writes its last operand into part of a state, its first operand (state.h): where the elements go, as
  /// views of the state with that operand's shape.
  Expr (*place)(std::span<const Expr> in) = nullptr;
  /// Anchors and sinks: the result in fp64.
  void (*reference)(const Node& n, std::span<const double* const> in, double* out) = nullptr;
  int factors = 0;  ///< Anchor: how many of its first operands are multiplied
  /// Anchor: name of the anchor whose launch also yields this result, from the same operands and attributes.
  std::string_view companion_of = {};
  /// The same value in other nodes. Reduce: instead of `reduce`, since there is no way element by element. Anchor:
  /// instead of a reference, for devices without a kernel for the anchor (Target::runs). Null if there is no such form.
  Expr (*apart)(const Expr& node) = nullptr;
  /// Gradients of a scalar loss with respect to the operands, given `g`, its gradient with respect to the node. An
  /// operand without a gradient (indices) gets an empty Expr. Null if the node has no rule.
  std::vector<Expr> (*vjp)(const Expr& node, const Expr& g) = nullptr;
};

/// All node types, in a fixed order.
std::span<const NodeType* const> node_types();
/// The type of this name, or nullptr.
const NodeType* find_node_type(std::string_view name);

/// The record of node struct T.
template <class T>
const NodeType& node_type();

template <class T>
bool Expr::is() const {
  return node_ && node_->type == &node_type<T>();
}

/// The node of struct T over these operands, in their graph.
template <class T>
Expr make_node(std::span<const Expr> in, const Attrs& attrs = {}) {
  return in[0].graph().make(node_type<T>(), in, attrs);
}
template <class T>
Expr make_node(std::initializer_list<Expr> in, const Attrs& attrs = {}) {
  return make_node<T>(std::span(in.begin(), in.size()), attrs);
}

/// Sums `g` over the axes along which `shape` was broadcast to g's shape (the vjp of broadcasting).
Expr sum_to_shape(const Expr& g, const Shape& shape);

/// Broadcasts operands of a pointwise node to their common shape with explicit broadcast views.
std::vector<Expr> broadcast_operands(std::span<const Expr> in);

// ---- families -----------------------------------------------------------------------------------------------------

/// N operands of one shape (factories broadcast) and P scalar parameters; computes and yields f32.
/// Needs: name, `static V eval(V x.., hd::Scalar<V> p..)` for every number type V of hd.h, and
///        `static std::array<Expr, N> vjp(Expr g, Expr x.., double p..)`, both templates: devices have no Expr.
template <int N, int P = 0>
struct Pointwise {
  static constexpr Family family = Family::Pointwise;
  static constexpr int kArity = N, kParams = P;
  static void infer(std::span<const Expr> in, const Attrs&, Shape& shape) {
    for (const Expr& e : in)
      TENON_CHECK(Usage, e.shape() == shape, "pointwise")
          << "operands " << shape.str() << " and " << e.shape().str() << " differ";
  }
  static DType dtype(std::span<const Expr>, const Attrs&) { return DType::F32; }
};

/// Needs: name, kArity unless it is 1, `infer`; `map`, which tells every backend where the element at coordinates c is
/// found (index_algebra.h); a bijection needs `inverse`, which is also its gradient, any other view `vjp`.
struct View {
  static constexpr Family family = Family::View;
  static constexpr int kArity = 1;
  static DType dtype(std::span<const Expr> in, const Attrs&) { return in[0].dtype(); }
};

/// attrs.ints[0] is a ReduceOver. The reduced axes stay, with extent 1. Needs: name, vjp, init and step; finish(sum, n)
/// if the result differs from the last step's; combine(a, b) if partial results are not combined by step(a, b). May
/// have of_moments(n, mean, m2) (NodeType::reduce_of_moments). One that cannot be accumulated element by element needs
/// apart(node), the same value in other nodes, instead of init and step.
struct Reduce {
  static constexpr Family family = Family::Reduce;
  static constexpr int kArity = 1;
  HD static auto finish(auto acc, auto) { return acc; }
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape);
  static DType dtype(std::span<const Expr>, const Attrs&) { return DType::F32; }
  /// Number of elements reduced to one result.
  static double count(const Node& n);
};

/// Needs: name, kArity, infer, place and reference.
struct Sink {
  static constexpr Family family = Family::Sink;
  static DType dtype(std::span<const Expr> in, const Attrs&) { return in[0].dtype(); }
};

/// Needs: name, kArity, infer, and reference or apart. A vjp is optional. Yields the f32 accumulator. Its dtype
/// attribute, if set, is the type its operands are multiplied in (precision.h). kFactors: how many operands, from the
/// first, are multiplied, if not all; companion_of: the anchor it is another result of; apart(node): the same value in
/// other nodes.
struct Anchor {
  static constexpr Family family = Family::Anchor;
  static DType dtype(std::span<const Expr>, const Attrs&) { return DType::F32; }
};

/// Needs: name, infer.
struct Leaf {
  static constexpr Family family = Family::Leaf;
  static constexpr int kArity = 0;
  static DType dtype(std::span<const Expr>, const Attrs& attrs) { return attrs.dtype.value_or(DType::F32); }
};

namespace detail {

// Calls T::eval with N values and P scalars taken from arrays.
template <class T, class V>
HD inline V call_eval(const V* x, const hd::Scalar<V>* p) {
  return [&]<size_t... I, size_t... J>(std::index_sequence<I...>, std::index_sequence<J...>)
      __attribute__((always_inline)) {
    return T::template eval<V>(x[I]..., p[J]...);
  }
  (std::make_index_sequence<T::kArity>{}, std::make_index_sequence<T::kParams>{});
}

template <class T>
std::vector<Expr> call_pointwise_vjp(const Expr& node, const Expr& g) {
  auto grads = [&]<size_t... I, size_t... J>(std::index_sequence<I...>, std::index_sequence<J...>) {
    return T::vjp(g, node->in[I]..., node->attrs.nums[J]...);
  }
  (std::make_index_sequence<T::kArity>{}, std::make_index_sequence<T::kParams>{});
  static_assert(grads.size() == T::kArity, "one gradient for each operand");
  return {grads.begin(), grads.end()};
}

template <class T>
auto reduce_all(std::span<const double> x) {
  double acc = T::init;
  for (const double each : x) acc = T::step(acc, each);
  return T::finish(acc, static_cast<double>(x.size()));
}

template <class T>
constexpr NodeType make_node_type() {
  NodeType t;
  t.name = T::name;
  t.family = T::family;
  t.arity = T::kArity;
  t.infer = &T::infer;
  t.dtype = &T::dtype;
  if constexpr (T::family == Family::Pointwise) {
    t.num_params = T::kParams;
    t.eval = [](const double* x, const double* p) { return call_eval<T, double>(x, p); };
    if constexpr (requires { T::round; }) t.round = &T::round;
    t.vjp = &call_pointwise_vjp<T>;
  } else if constexpr (T::family == Family::View) {
    t.map = &T::map;
    if constexpr (requires { T::inverse; }) {
      t.inverse = &T::inverse;
      t.vjp = [](const Expr& node, const Expr& g) { return std::vector{T::inverse(*node, g)}; };
    } else {
      t.vjp = &T::vjp;
    }
  } else if constexpr (T::family == Family::Reduce) {
    if constexpr (requires { T::apart; })
      t.apart = &T::apart;
    else
      t.reduce = &reduce_all<T>;
    if constexpr (requires { T::of_moments(0.0, 0.0, 0.0); }) t.reduce_of_moments = &T::of_moments;
    t.vjp = &T::vjp;
  } else if constexpr (T::family == Family::Sink) {
    t.place = &T::place;
    t.reference = &T::reference;
  } else if constexpr (T::family == Family::Anchor) {
    if constexpr (requires { T::apart; })
      t.apart = &T::apart;
    else
      t.reference = &T::reference;
    t.factors = T::kArity;
    if constexpr (requires { T::kFactors; }) t.factors = T::kFactors;
    if constexpr (requires { T::companion_of; }) t.companion_of = T::companion_of;
    if constexpr (requires { T::vjp; }) t.vjp = &T::vjp;
  }
  return t;
}

template <class T>
inline constexpr NodeType kNodeType = make_node_type<T>();

// Operands first, then scalar parameters.
template <class T, class... A>
Expr make_pointwise(const A&... args) {
  static_assert(sizeof...(args) == T::kArity + T::kParams, "wrong number of operands and parameters");
  std::vector<Expr> in;
  Attrs attrs;
  const auto add = [&](const auto& arg) {
    if constexpr (std::is_convertible_v<decltype(arg), Expr>)
      in.push_back(arg);
    else
      attrs.nums.push_back(arg);
  };
  (add(args), ...);
  return make_node<T>(broadcast_operands(in), std::move(attrs));
}

}  // namespace detail

template <class T>
const NodeType& node_type() {
  return detail::kNodeType<T>;
}

}  // namespace tenon

/// Defines the factory of a pointwise node: operands first, then scalar parameters.
#define POINTWISE_FACTORY(T, function)                   \
  namespace tenon {                                      \
  template <class... A>                                  \
  Expr function(const Expr& x, const A&... rest) {       \
    return detail::make_pointwise<nodes::T>(x, rest...); \
  }                                                      \
  }

/// Announces node struct tenon::nodes::T; the build collects these lines into the list of all nodes. A second argument
/// names the factory of a pointwise node.
#define NODE(T, ...)                                                          \
  static_assert(!::tenon::detail::kNodeType<::tenon::nodes::T>.name.empty()); \
  __VA_OPT__(POINTWISE_FACTORY(T, __VA_ARGS__))
#endif
