#include "tenon/expr/expr.h"

#include <algorithm>

#include "tenon/core/text.h"
#include "tenon/expr/node_type.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"

namespace tenon {
namespace {

// Sums and differences of a few extents, or of attributes as large, then cannot overflow.
constexpr int64_t kMaxExtent = int64_t{1} << 48;
constexpr int64_t kMaxElements = int64_t{1} << 56;  // their bytes, and sums of a few such, cannot overflow either
constexpr std::string_view kComputed = "%0 = ";     // starts the text of an expression, never a tensor's name

const Node& node_of(const Node* node) {
  TENON_CHECK(Usage, node, "expression") << "is empty: a default-constructed Expr has no value";
  return *node;
}

uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccdull;
}

uint64_t hash_of(const NodeType& type, std::span<const Expr> in, const Attrs& a) {
  uint64_t h = mix(std::hash<std::string_view>{}(type.name), std::hash<std::string>{}(a.text));
  for (const Expr& e : in) h = mix(h, e->id);
  h = mix(h, a.dtype ? 1 + static_cast<uint64_t>(*a.dtype) : 0);
  for (int64_t d : a.dims.value_or(Shape())) h = mix(h, static_cast<uint64_t>(d));
  for (int64_t i : a.ints) h = mix(h, static_cast<uint64_t>(i));
  for (double n : a.nums) h = mix(h, std::bit_cast<uint64_t>(n));
  return h;
}

std::string describe(const NodeType& type, std::span<const Expr> in) {
  std::vector<std::string> operands;
  for (const Expr& x : in) operands.push_back(x ? std::string(name_of(x.dtype())) + x.shape().str() : "nothing");
  return std::string(type.name) + "(" + joined(operands) + ")";
}

// An anchor's declared arithmetic must not round its operands, except in a product in i8 blocks.
void check_arithmetic(const NodeType& type, std::span<const Expr> in, const Attrs& attrs) {
  if (type.family != Family::Anchor || !attrs.dtype || (attrs.dtype == DType::I8 && type.name == "linear")) return;
  for (const Expr& x : in.first(std::min(in.size(), static_cast<size_t>(type.factors))))
    TENON_CHECK(Usage, holds(*attrs.dtype, x.dtype()), type.name.data())
        << "multiplies in " << name_of(*attrs.dtype) << ", which cannot hold the values of " << describe(type, in);
}

Expr memory_leaf(Graph& g, const NodeType& type, std::string name, DType dtype, Shape shape, Rate rate) {
  Attrs a{.text = std::move(name), .dtype = dtype, .dims = shape};
  if (rate != Rate::Constant) a.ints = {static_cast<int64_t>(rate)};
  return g.make(type, {}, a);
}

}  // namespace

std::string_view name_of(Rate r) { return kRateNames[static_cast<size_t>(r)]; }

bool Attrs::operator==(const Attrs& o) const {
  // Bit comparison of numbers: NaN parameters must hash-cons too, and -0 is not 0.
  const auto same_bits = [](double x, double y) { return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y); };
  return text == o.text && dtype == o.dtype && dims == o.dims && ints == o.ints &&
         std::equal(nums.begin(), nums.end(), o.nums.begin(), o.nums.end(), same_bits);
}

const Shape& Expr::shape() const { return node_of(node_).shape; }
DType Expr::dtype() const { return node_of(node_).dtype; }
Graph& Expr::graph() const { return *node_of(node_).graph; }
std::string_view Node::name() const { return type->name; }
Family Node::family() const { return type->family; }

Expr Graph::make(const NodeType& given, std::span<const Expr> in, Attrs attrs) {
  const NodeType* own = find_node_type(given.name);  // programs with hidden symbols have copies of the records
  const NodeType& type = own ? *own : given;
  for (const Expr& e : in)
    TENON_CHECK(Usage, e && e->graph == this, type.name.data())
        << "operand from another graph, or empty: " << describe(type, in);
  TENON_CHECK(Usage, type.arity < 0 ? !in.empty() : in.size() == static_cast<size_t>(type.arity), type.name.data())
      << "expected " << (type.arity < 0 ? "one or more" : std::to_string(type.arity)) << " operands, got "
      << describe(type, in);
  TENON_CHECK(Usage, type.family != Family::Pointwise || attrs.nums.size() == static_cast<size_t>(type.num_params),
              type.name.data())
      << "expected " << type.num_params << " parameters, got " << attrs.nums.size();
  for (int64_t i : attrs.ints)
    TENON_CHECK(Usage, i >= -kMaxExtent && i <= kMaxExtent, type.name.data()) << "attribute " << i << " exceeds 2^48";
  if (attrs.dtype) static_cast<void>(size_of(*attrs.dtype));  // refuses a number that is no type
  const uint64_t h = hash_of(type, in, attrs);
  for (auto [it, end] = index_.equal_range(h); it != end; ++it) {
    const Node& n = *it->second;
    if (n.type == &type && n.attrs == attrs && std::ranges::equal(n.in, in)) return Expr(&n);
  }
  Node n;
  n.type = &type;
  n.graph = this;
  n.id = static_cast<uint32_t>(nodes_.size());
  if (!in.empty()) n.shape = in[0].shape();
  type.infer(in, attrs, n.shape);
  n.dtype = type.dtype(in, attrs);
  check_arithmetic(type, in, attrs);
  for (int64_t d : n.shape) TENON_CHECK(Usage, d <= kMaxExtent, type.name.data()) << "extent " << d << " exceeds 2^48";
  TENON_CHECK(Memory, n.shape.numel() <= kMaxElements, type.name.data())
      << n.shape.str() << " has more than 2^56 elements";
  for (const Expr& e : in) n.rate = std::max(n.rate, e->rate);
  const bool rated = type.family == Family::Leaf && !attrs.ints.empty();
  TENON_CHECK(Usage, !rated || (attrs.ints[0] >= 0 && attrs.ints[0] <= static_cast<int64_t>(Rate::Step)),
              type.name.data())
      << "rate " << attrs.ints[0] << " is outside 0..3";
  if (rated) n.rate = static_cast<Rate>(attrs.ints[0]);
  n.in.assign(in.begin(), in.end());
  n.attrs = std::move(attrs);
  nodes_.push_back(std::move(n));
  index_.emplace(h, &nodes_.back());
  return Expr(&nodes_.back());
}

Expr input(Graph& g, std::string name, DType dtype, Shape shape, Rate rate) {
  return memory_leaf(g, node_type<nodes::Input>(), std::move(name), dtype, shape, rate);
}
Expr param(Graph& g, std::string name, DType dtype, Shape shape) {
  return memory_leaf(g, node_type<nodes::Param>(), std::move(name), dtype, shape, Rate::Constant);
}
Expr computed_param(const Expr& value, DType dtype) {
  Graph own;  // its nodes are numbered independently of value's graph
  Memo memo;
  return param(value.graph(), print(rebuild(own, value, memo)), dtype, value.shape());
}
bool is_computed(const Expr& param) { return param->attrs.text.starts_with(kComputed); }
Expr computation_of(Graph& g, std::string_view name) {
  return name.starts_with(kComputed) ? parse(g, name).at(0) : Expr();
}
Expr scalar(Graph& g, std::string name, DType dtype, Rate rate) {
  return memory_leaf(g, node_type<nodes::ScalarInput>(), std::move(name), dtype, {}, rate);
}
Expr state(Graph& g, std::string name, DType dtype, Shape shape) {
  return memory_leaf(g, node_type<nodes::State>(), std::move(name), dtype, shape, Rate::Step);
}
Expr constant(Graph& g, double value) { return g.make(node_type<nodes::Constant>(), {}, {.nums = {value}}); }
Expr iota(Graph& g, int64_t n) { return g.make(node_type<nodes::Iota>(), {}, {.dims = Shape{n}}); }

bool is_memory_leaf(const Expr& e) {
  return e.is<nodes::Input>() || e.is<nodes::Param>() || e.is<nodes::ScalarInput>() || e.is<nodes::State>();
}

std::vector<Expr> topological(std::span<const Expr> roots, const Memo& known) {
  std::vector<Expr> order;
  const Graph* graph = nullptr;
  std::vector<char> done;  // operands have smaller ids than their users
  for (const Expr& root : roots) {
    if (!root) continue;
    TENON_CHECK(Usage, !graph || graph == root->graph, "expressions") << "are from different graphs";
    graph = root->graph;
    done.resize(std::max<size_t>(done.size(), root->id + 1));
  }
  std::vector<std::pair<Expr, size_t>> stack;
  const auto visit = [&](const Expr& e) {
    if (e && !done[e->id] && !known.contains(e.get())) stack.emplace_back(e, 0);
  };
  for (const Expr& root : roots)
    for (visit(root); !stack.empty();) {
      auto& [e, next] = stack.back();
      if (done[e->id]) {
        stack.pop_back();
      } else if (next < e->in.size()) {
        visit(e->in[next++]);
      } else {
        done[e->id] = true;
        order.push_back(e);
        stack.pop_back();
      }
    }
  return order;
}

std::vector<Expr> rebuild(Graph& g, std::span<const Expr> roots, const Replace& replace, Memo& memo) {
  for (const Expr& e : topological(roots, memo)) {
    if (memo.contains(e.get())) continue;  // `replace` may rebuild more with the same memo
    std::vector<Expr> in;
    for (const Expr& operand : e->in) in.push_back(memo.at(operand.get()));
    const Expr made = replace ? replace(e, in) : Expr();
    memo.emplace(e.get(), made ? made : g.make(*e->type, in, e->attrs));
  }
  std::vector<Expr> out;
  for (const Expr& r : roots) out.push_back(memo.at(r.get()));
  return out;
}
std::vector<Expr> rebuild(Graph& g, std::span<const Expr> roots, const Replace& replace) {
  Memo memo;
  return rebuild(g, roots, replace, memo);
}
Expr rebuild(Graph& g, const Expr& root, const Replace& replace, Memo& memo) {
  return rebuild(g, std::array{root}, replace, memo)[0];
}
Expr rebuild(Graph& g, const Expr& root, Memo& memo) { return rebuild(g, root, Replace(), memo); }

}  // namespace tenon
