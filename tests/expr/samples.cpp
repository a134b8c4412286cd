#include "tests/expr/samples.h"

#include <algorithm>

namespace tenon::testing {
namespace {

class Sampler {
 public:
  Sampler(Graph& g, const NodeType& type, uint32_t seed) : g_(g), type_(type), random_(seed) {}

  // One attempt; an empty Expr if the type refuses it.
  Expr attempt() {
    const int arity = type_.arity < 0 ? 1 + below(3) : type_.arity;
    const Shape base = random_shape(type_.family == Family::Reduce ? 3 : 1);
    std::vector<Expr> in;
    for (int k = 0; k < arity; ++k) in.push_back(input(g_, leaf_name(), DType::F64, base));
    if (type_.family == Family::View && arity == 2 && type_.arity == 2)
      in[1] = input(g_, leaf_name(), DType::I32, below(4) ? random_shape(1, 2) : Shape());
    try {
      return g_.make(type_, in, attributes(base));
    } catch (const Error&) {
      return {};
    }
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  std::string leaf_name() {
    std::string name = "x";
    return name += std::to_string(g_.size());
  }
  Shape random_shape(int least, int most = 4) {
    std::vector<int64_t> dims(static_cast<size_t>(least + below(most - least + 1)));
    for (int64_t& d : dims) d = 2 + below(3);
    if (below(3) == 0) dims[static_cast<size_t>(below(static_cast<int>(dims.size())))] = 1;
    if (type_.arity == 2) dims[0] = std::max<int64_t>(dims[0], 2);  // room for index values 0 and 1
    return Shape(dims);
  }
  Attrs attributes(const Shape& base) {
    Attrs a;
    for (int i = 0; i < type_.num_params; ++i) a.nums.push_back(i % 2 ? 1.25 : -0.75);
    if (type_.family == Family::Reduce) a.ints = {below(2)};
    if (type_.family == Family::Pointwise && type_.round) {
      constexpr DType kTypes[] = {DType::F32, DType::F16, DType::BF16, DType::E4M3};
      a.dtype = kTypes[below(4)];
    }
    if (type_.family != Family::View) return a;
    if (below(3) == 0) {
      a.dims = related_shape(base);
    } else if (below(2)) {
      for (int64_t i = 0; i < base.rank(); ++i) a.ints.push_back(i);
      std::ranges::shuffle(a.ints, random_);
    } else {
      a.ints.resize(static_cast<size_t>(below(2 * base.rank() + 1)));
      for (int64_t& i : a.ints) i = below(5);
    }
    return a;
  }
  // The shape with extents of 1 repeated, or axes merged, shuffled, split or prepended.
  Shape related_shape(const Shape& base) {
    std::vector<int64_t> dims(base.begin(), base.end());
    const int way = below(4);
    if (way == 0) std::ranges::shuffle(dims, random_);
    if (way == 1)
      for (int64_t& d : dims) d = d == 1 ? 3 : d;
    if (way == 2 && dims.size() > 1) {
      dims[dims.size() - 2] *= dims.back();
      dims.pop_back();
    }
    if (below(2)) dims.insert(dims.begin(), way == 1 ? 2 : 1);
    for (size_t i = 0; way == 3 && i < dims.size(); ++i)
      if (dims[i] == 4) dims[i] = 2, dims.insert(dims.begin() + static_cast<ptrdiff_t>(i), 2);
    return Shape(dims);
  }

  Graph& g_;
  const NodeType& type_;
  std::mt19937 random_;
};

}  // namespace

std::vector<Expr> sample_nodes(Graph& g, const NodeType& type, size_t wanted, uint32_t seed) {
  Sampler sampler(g, type, seed);
  std::vector<Expr> out;
  for (int tries = 0; tries < 20000 && out.size() < wanted; ++tries)
    if (const Expr e = sampler.attempt()) out.push_back(e);
  return out;
}

Values random_values(const Expr& root, double low, double high, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> number(low, high);
  Values values;
  for (const Expr& e : topological(std::array{root})) {
    if (!is_memory_leaf(e)) continue;
    std::vector<double>& v = values[e->attrs.text];
    v.resize(static_cast<size_t>(e.shape().numel()));
    for (double& x : v) x = is_float(e.dtype()) ? number(random) : static_cast<double>(random() % 2);
  }
  return values;
}

std::vector<const NodeType*> types_of(Family family) {
  std::vector<const NodeType*> out;
  for (const NodeType* t : node_types())
    if (t->family == family) out.push_back(t);
  return out;
}

}  // namespace tenon::testing
