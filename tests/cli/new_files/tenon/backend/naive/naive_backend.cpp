// The naive backend computes every node of a launch from the node's own definition, in fp64, one after another.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tenon/backend/arithmetic.h"
#include "tenon/backend/backend.h"
#include "tenon/backend/kernel.h"
#include "tenon/core/error.h"
#include "tenon/core/host_tensor.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/walk.h"

namespace tenon::naive {
namespace {

constexpr int64_t kAlignment = 64;

using Values = std::vector<double>;
using Operands = std::vector<const Values*>;

// Values of expressions, each node computed once.
class Evaluation {
 public:
  explicit Evaluation(std::function<Values(const Expr& leaf)> leaves) : leaves_(std::move(leaves)) {}

  const Values& of(const Expr& e) {
    if (const auto it = known_.find(e.get()); it != known_.end()) return it->second;
    Operands in;
    for (const Expr& x : e->in) in.push_back(&of(x));
    return known_.emplace(e.get(), compute(e, in)).first->second;
  }

 private:
  Values compute(const Expr& e, const Operands& in) const {
    if (e->type->apart) return in_other_nodes(*e, in);
    if (e.is<nodes::Constant>()) return {e->attrs.nums[0]};
    if (e->family() == Family::Leaf && !e.is<nodes::Iota>()) return leaves_(e);
    Values out(static_cast<size_t>(e.shape().numel()));
    if (e->family() == Family::Anchor || e->family() == Family::Sink) {
      std::vector<const double*> data;
      for (const Values* x : in) data.push_back(x->data());
      e->type->reference(*e, data, out.data());
      return out;
    }
    for (size_t i = 0; i < out.size(); ++i) out[i] = element(*e, in, i);
    return out;
  }

  static double element(const Node& n, const Operands& in, size_t i) {
    switch (n.family()) {
      case Family::Pointwise:
        return pointwise(n, in, i);
      case Family::View:
        return view(n, in, i);
      case Family::Reduce:
        return reduced(n, *in[0], i);
      default:
        return static_cast<double>(i);  // iota
    }
  }

  static double pointwise(const Node& n, const Operands& in, size_t i) {
    Values x;
    for (const Values* operand : in) x.push_back((*operand)[i]);
    const double y = n.type->eval(x.data(), n.attrs.nums.data());
    return n.type->round ? n.type->round(n.attrs, y) : y;
  }

  static double view(const Node& n, const Operands& in, size_t i) {
    const auto at = [&](int operand, const Coord& c) {
      return (
          *in[static_cast<size_t>(operand)])[static_cast<size_t>(n.in[static_cast<size_t>(operand)].shape().ravel(c))];
    };
    Walk walk{n.shape.unravel(static_cast<int64_t>(i)), {}, 1};
    const int operand = follow(n, walk, [&](int index, const Coord& c) { return static_cast<int64_t>(at(index, c)); });
    return operand < 0 ? 0 : at(operand, walk.at);
  }

  static double reduced(const Node& n, const Values& from, size_t i) {
    const bool last = n.attrs.ints[0] == static_cast<int64_t>(ReduceOver::Last);
    const size_t inner = last ? 1 : static_cast<size_t>(n.in[0].shape()[-1]);
    Values x(static_cast<size_t>(nodes::Sum::count(n)));
    for (size_t k = 0; k < x.size(); ++k) x[k] = from[(i / inner * x.size() + k) * inner + i % inner];
    return n.type->reduce(x);
  }

  static Values in_other_nodes(const Node& n, const Operands& in) {
    Graph g;
    std::vector<Expr> places;
    for (const Expr& x : n.in) places.push_back(input(g, std::to_string(places.size()), x.dtype(), x.shape()));
    Attrs exact = n.attrs;
    exact.dtype.reset();
    const Expr other = n.type->apart(g.make(*n.type, places, exact));
    return Evaluation([&](const Expr& leaf) { return *in[std::stoul(leaf->attrs.text)]; }).of(other);
  }

  std::function<Values(const Expr&)> leaves_;
  std::unordered_map<const Node*, Values> known_;
};

Values read(DType type, const Shape& shape, const void* data) {
  HostTensor t = HostTensor::zeros(type, shape);
  if (!t.data.empty()) std::memcpy(t.data.data(), data, t.data.size());
  return t.values();
}

void write(DType type, const Shape& shape, const Values& values, void* data) {
  const HostTensor t = HostTensor::from(type, shape, values);
  if (!t.data.empty()) std::memcpy(data, t.data.data(), t.data.size());
}

// The parameter as it is, in the leaf's type.
WeightRequest request(const Expr& leaf) {
  const auto graph = std::make_shared<Graph>();
  Memo memo;
  const Expr own = rebuild(*graph, leaf, memo);
  const auto make = [graph, own](const WeightMaking& with, std::span<void* const> parts) {
    const ParamView view = with.find(own);
    write(own.dtype(), own.shape(), read(view.dtype, view.shape, view.data), parts[0]);
  };
  return {{{plain_key(leaf), bytes_of(leaf.shape(), leaf.dtype())}}, params_of(std::array{leaf}), {}, make};
}

class NaiveKernel : public Kernel {
 public:
  explicit NaiveKernel(const Launch& launch) {
    if (anchor_of(launch)) obeyed_arithmetic(launch, std::array{DType::F32, DType::BF16});
    Memo memo;
    for (const Output& o : launch.outputs) outputs_.push_back({o.buffer, rebuild(graph_, o.value, memo)});
    for (const Output& o : outputs_)
      for (const Expr& e : topological(std::array{o.value})) add(e);
  }
  LaunchMemory memory() const override { return {}; }
  std::span<const WeightRequest> weights() const override { return requests_; }
  void bind(const BufferTable& buffers, std::span<void* const> weights, void*) override {
    for (size_t i = 0; i < weights.size(); ++i) addresses_[params_[i].get()] = weights[i];
    rebind(buffers);
  }
  void rebind(const BufferTable& buffers) override {
    for (const Expr& e : memory_) addresses_[e.get()] = buffers(e->attrs.text);
    places_.clear();
    for (const Output& o : outputs_) places_.push_back(buffers(o.buffer));
  }
  void run(Stream&, void*) override {
    Evaluation values([&](const Expr& leaf) { return read(leaf.dtype(), leaf.shape(), addresses_.at(leaf.get())); });
    for (const Output& o : outputs_) values.of(o.value);  // all, before any is written over what it reads
    for (size_t i = 0; i < places_.size(); ++i) {
      const Expr& value = outputs_[i].value;
      write(value.dtype(), value.shape(), values.of(value), places_[i]);
    }
  }
  std::string describe() const override { return "node by node"; }

 private:
  void add(const Expr& leaf) {
    std::vector<Expr>& kind = leaf.is<nodes::Param>() ? params_ : memory_;
    if (!is_memory_leaf(leaf) || std::ranges::find(kind, leaf) != kind.end()) return;
    kind.push_back(leaf);
    if (leaf.is<nodes::Param>()) requests_.push_back(request(leaf));
  }

  Graph graph_;
  std::vector<Output> outputs_;
  std::vector<Expr> params_, memory_;
  std::vector<WeightRequest> requests_;
  std::unordered_map<const Node*, void*> addresses_;
  std::vector<void*> places_;
};

class NaiveBackend : public Backend {
 public:
  std::string_view name() const override { return "naive"; }
  std::string describe() const override { return "naive, fp64 node by node"; }
  int64_t memory_available() const override { return int64_t{1} << 30; }
  std::vector<DType> types() const override { return {DType::F32, DType::BF16}; }
  Target target() const override { return {}; }
  std::shared_ptr<void> allocate(int64_t bytes) override {
    const auto size = static_cast<size_t>((bytes / kAlignment + 1) * kAlignment);
    void* p = std::aligned_alloc(kAlignment, size);
    if (!p) throw Error(ErrorKind::Memory, "memory", "cannot allocate " + std::to_string(bytes) + " bytes");
    return {std::memset(p, 0, size), std::free};
  }
  std::unique_ptr<Kernel> make_kernel(const Launch& launch) override { return std::make_unique<NaiveKernel>(launch); }
  std::unique_ptr<ListKernel> prepare_list(const Launch& launch) override {
    throw Error(ErrorKind::Usage, launch.name, "the naive backend does not train");
  }
  void copy(Stream&, void* dst, const void* src, int64_t bytes) override {
    std::memcpy(dst, src, static_cast<size_t>(bytes));
  }
  void copy_in(Stream& stream, void* dst, const void* src, int64_t bytes) override { copy(stream, dst, src, bytes); }
  void copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) override { copy(stream, dst, src, bytes); }
};

const RegisterBackend kRegistered("naive", [](const BackendOptions&) { return std::make_unique<NaiveBackend>(); });

}  // namespace
}  // namespace tenon::naive
