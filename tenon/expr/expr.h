// Expressions: immutable, hash-consed values. An Expr is a handle to one node of a DAG that a Graph owns; equal nodes
// of one graph are the same node, so comparing handles compares meaning. A node has a shape, an element type and a
// printed form, belongs to one of six families, and knows nothing of how it will be run.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tenon/core/dtype.h"
#include "tenon/core/shape.h"

namespace tenon {

enum class Family : uint8_t { Leaf, Pointwise, View, Reduce, Sink, Anchor };

/// How often a value changes. A node changes as often as the fastest of its operands. The planner hoists by rate.
enum class Rate : uint8_t { Constant, Schedule, Prompt, Step };
/// In order, from never changing to changing most often.
inline constexpr Rate kRates[] = {Rate::Constant, Rate::Schedule, Rate::Prompt, Rate::Step};
/// Their names.
inline constexpr std::string_view kRateNames[] = {"constant", "schedule", "prompt", "step"};
std::string_view name_of(Rate r);

/// All of a node's data but its operands. Printed between < and > in the order of the members.
struct Attrs {
  std::string text = {};            ///< names of leaves
  std::optional<DType> dtype = {};  ///< of leaves, casts, rounding points; what an anchor multiplies its operands in
  std::optional<Shape> dims = {};   ///< leaves, reshape, broadcast
  std::vector<int64_t> ints = {};   ///< axes, bounds, strides
  std::vector<double> nums = {};    ///< scalar parameters of pointwise bodies, attention scale, literals
  bool operator==(const Attrs& o) const;
};

struct NodeType;
class Graph;
class Node;

/// Handle to a node. Cheap to copy; valid as long as its Graph lives. A default-constructed Expr is empty.
class Expr {
 public:
  Expr() = default;
  explicit Expr(const Node* n) : node_(n) {}
  const Node* operator->() const { return node_; }
  const Node& operator*() const { return *node_; }
  const Node* get() const { return node_; }
  explicit operator bool() const { return node_ != nullptr; }
  bool operator==(const Expr& o) const = default;
  const Shape& shape() const;
  DType dtype() const;
  Graph& graph() const;
  /// True if this node is of the node struct T: `x.is<nodes::Silu>()`.
  template <class T>
  bool is() const;

 private:
  const Node* node_ = nullptr;
};

/// A named result of a model, or of a launch.
struct Result {
  std::string name;
  Expr value;
};

/// One immutable node.
class Node {
 public:
  const NodeType* type = nullptr;
  Graph* graph = nullptr;
  uint32_t id = 0;  ///< position in the graph: operands have smaller ids
  Rate rate = Rate::Constant;
  DType dtype = DType::F32;
  Shape shape;
  std::vector<Expr> in;
  Attrs attrs;
  std::string_view name() const;
  Family family() const;
};

/// Owns nodes. Not thread-safe while nodes are being added. Neither copyable nor movable: handles point into it.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// The node of this type, operands and attributes, created unless it exists. Checks operands, infers shape and dtype;
  /// throws Error(Usage) that prints the operation and its operands. Operands must belong to this graph.
  Expr make(const NodeType& type, std::span<const Expr> in, Attrs attrs = {});
  size_t size() const { return nodes_.size(); }

 private:
  std::deque<Node> nodes_;
  std::unordered_multimap<uint64_t, const Node*> index_;
};

// ---- leaves -------------------------------------------------------------------------------------------------------

/// A tensor that the caller supplies at each run.
Expr input(Graph& g, std::string name, DType dtype, Shape shape, Rate rate = Rate::Step);
/// A weight: constant over the life of a plan, stored and packed once.
Expr param(Graph& g, std::string name, DType dtype, Shape shape);
/// A param of type `dtype` whose contents are computed from other params. Its name is the printed text of `value`.
Expr computed_param(const Expr& value, DType dtype);
bool is_computed(const Expr& param);
/// The expression, in `g`, that the param of this name is computed from; empty if it is a param of the model itself.
Expr computation_of(Graph& g, std::string_view name);
/// A rank-0 value supplied at each run (a step index, a guidance scale). f32 or i32.
Expr scalar(Graph& g, std::string name, DType dtype = DType::F32, Rate rate = Rate::Step);
/// Memory that outlives runs (a cache, an optimizer's moment), initially zero, written by updates (update_rows).
Expr state(Graph& g, std::string name, DType dtype, Shape shape);
/// A literal number, rank 0, f32.
Expr constant(Graph& g, double value);
/// i32 [n]: 0, 1, .., n-1.
Expr iota(Graph& g, int64_t n);

/// True for input, param, scalar and state: leaves that are memory.
bool is_memory_leaf(const Expr& e);

// ---- traversal ----------------------------------------------------------------------------------------------------

using Memo = std::unordered_map<const Node*, Expr>;
/// Every node reachable from the roots, once each, operands before their users; without those in `known` and what only
/// they need.
std::vector<Expr> topological(std::span<const Expr> roots, const Memo& known = {});
/// Depth-first walk from `stack` to the nodes that `next` returns for each node; visits a node once.
template <class F>
void walk(std::vector<Expr> stack, const F& next) {
  std::unordered_set<const Node*> seen;
  while (!stack.empty()) {
    const Expr e = stack.back();
    stack.pop_back();
    if (!seen.insert(e.get()).second) continue;
    const std::span<const Expr> more = next(e);
    stack.insert(stack.end(), more.begin(), more.end());
  }
}
/// Visits `stack`, and descends to the operands of nodes for which `go_on` is true.
template <class F>
void walk_below(std::vector<Expr> stack, const F& go_on) {
  walk(std::move(stack), [&](const Expr& e) { return std::span(e->in).first(go_on(e) ? e->in.size() : 0); });
}
/// True if `is` holds for a node among or below `stack`, as far down as `go_on` leads.
template <class F, class G>
bool any_below(std::vector<Expr> stack, const F& is, const G& go_on) {
  bool found = false;
  walk_below(std::move(stack), [&](const Expr& e) { return !(found = found || is(e)) && go_on(e); });
  return found;
}
/// Rebuilds `root` in graph `g` (its own or another): where replace(node, rebuilt operands) returns a non-empty Expr,
/// that replaces the node; otherwise the same node over the rebuilt operands. `memo` may be passed on to further calls.
using Replace = std::function<Expr(const Expr& node, std::span<const Expr> in)>;
Expr rebuild(Graph& g, const Expr& root, const Replace& replace, Memo& memo);
/// The same for several roots.
std::vector<Expr> rebuild(Graph& g, std::span<const Expr> roots, const Replace& replace, Memo& memo);
std::vector<Expr> rebuild(Graph& g, std::span<const Expr> roots, const Replace& replace);
/// Copies the expression into graph `g`, except for nodes that the memo already maps.
Expr rebuild(Graph& g, const Expr& root, Memo& memo);

// ---- text ---------------------------------------------------------------------------------------------------------

/// One node over named operands: `conv2d<1,1,1,1,1>(%3, %4)`.
std::string print_node(const Expr& e, const std::function<std::string(const Expr&)>& operand_name);
/// The DAG below `roots`: one `%n = ...` line per node, numbered in topological order, then `return %a, %b`.
std::string print(std::span<const Expr> roots);
std::string print(const Expr& root);
/// Inverse of print, into `g`. Throws Error(Usage) with line number, what was expected and what was found.
std::vector<Expr> parse(Graph& g, std::string_view text);

}  // namespace tenon
