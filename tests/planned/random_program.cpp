#include "tests/planned/random_program.h"

#include <array>
#include <cmath>
#include <numeric>
#include <random>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/state.h"
#include "tenon/expr/vjp.h"
#include "tenon/nn/loss.h"
#include "tests/planned/layers.h"

namespace tenon::planned {
namespace {

constexpr double kGradients = 0.15;  // fraction of programs

std::string numbered(std::string prefix, size_t number) { return prefix += std::to_string(number); }

uint32_t hash_of(const std::string& text) {
  uint32_t h = 2166136261u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return h;
}

// Adds operations one after another, mostly to the last value, sometimes to one with other readers.
class Grower {
 public:
  Grower(Graph& g, uint32_t seed, const ProgramSize& size) : layers_(g, seed, size.elements), size_(size) {}

  std::vector<Result> grow() {
    values_.push_back(layers_.start());
    const int steps = 2 + layers_.below(size_.steps - 1);
    for (int i = 0; i < steps; ++i) {
      const Expr x = layers_.chance(0.75) ? values_.back() : any();
      const Expr y = step(x);
      if (y && y != x && y.shape().numel() <= size_.elements) values_.push_back(y);
    }
    return results();
  }

 private:
  const Expr& any() { return values_[static_cast<size_t>(layers_.below(static_cast<int>(values_.size())))]; }
  // An existing value of this shape, if there is one.
  Expr like(const Expr& x) {
    std::vector<Expr> found;
    for (const Expr& v : values_)
      if (v.shape() == x.shape() && v != x) found.push_back(v);
    return found.empty() ? Expr() : found[static_cast<size_t>(layers_.below(static_cast<int>(found.size())))];
  }

  Expr step(const Expr& x) {
    Layers& l = layers_;
    switch (l.below(27)) {
      case 22:
        return l.attend_cached(x);
      case 23:
        return l.remembered(x);
      case 24:
        return l.branched(x);
      case 25:
        return l.chance(0.7) ? l.stored(l.dense(l.views(x))) : l.views(any());
      case 26:
        return l.chance(0.2) ? l.drawn() : l.views(x);
      case 0:
      case 1:
        return l.stored(l.unary(x));
      case 2:
      case 3:
        return l.stored(l.binary(x, like(x)));
      case 4:
      case 5:
      case 6: {
        const Expr y = l.dense(x);
        return y && l.chance(0.5) ? l.stored(l.binary(y, like(y))) : l.stored(y);
      }
      case 7:
        return l.stored(l.gate(x));
      case 8:
        return l.stored(l.norm(x));
      case 9:
      case 10:
        return l.residual(x);
      case 11:
        return x.shape().rank() == 3 ? l.stored(l.attend(x, any())) : l.stored(l.dense(x));
      case 12:
        return l.beside(x);
      case 13:
        return l.product_of_activations(x, any());
      case 14:
        return l.reduced(x);
      case 15:
        return l.quantised_dense(x);
      case 16:
        return l.joined(x, any());
      case 17:
      case 18:
        return l.several_anchors(x, any());
      default:
        return l.view(x);
    }
  }

  // The last value, and sometimes intermediate ones.
  std::vector<Result> results() {
    std::vector<Expr> roots{layers_.chance(0.3) ? layers_.narrow(values_.back()) : values_.back()};
    for (const Expr& v : values_)
      if (layers_.chance(0.15)) roots.push_back(v);
    std::vector<Result> out;
    std::vector<Expr> taken;
    for (const Expr& r : roots) {
      const bool good = r->family() != Family::Leaf && !is_update(r);
      if (!good || std::find(taken.begin(), taken.end(), r) != taken.end()) continue;
      taken.push_back(r);
      out.push_back({numbered("r", out.size()), r});
    }
    if (out.empty()) out.push_back({"r0", tanh(values_.back())});
    if (layers_.chance(kGradients)) add_gradients(out);
    if (layers_.chance(0.03)) add_loss(out);
    for (const auto& [name, update] : layers_.states()) out.push_back({name, update});
    return out;
  }

  // Adds gradients, if every node has a gradient rule. That of a maximum asks which element equals it; if one of the
  // two is stored in f32, the answer differs in fp64.
  void add_gradients(std::vector<Result>& results) {
    const Expr y = results.front().value;
    std::vector<Expr> leaves;
    for (const Expr& e : topological(std::array{y}))
      if (e.is<nodes::ReduceMax>() || e.is<nodes::AbsMax>()) return;
    for (const Expr& e : topological(std::array{y}))
      if (is_memory_leaf(e) && is_float(e.dtype()) && leaves.size() < 3 && layers_.chance(0.5)) leaves.push_back(e);
    if (leaves.empty()) return;
    try {
      const Expr seed = input(y.graph(), "seed", DType::F32, y.shape());
      for (const Expr& g : gradients(y, seed, leaves)) {
        const bool good = g->family() != Family::Leaf && g.shape().numel() <= size_.elements * 4;
        const bool fresh = std::ranges::none_of(results, [&](const Result& r) { return r.value == g; });
        if (good && fresh) results.push_back({numbered("g", results.size()), g});
      }
    } catch (const Error&) {  // no rule
    }
  }

  // The loss of a language model over the last value, and its gradients.
  void add_loss(std::vector<Result>& results) {
    const Expr& hidden = values_.back();
    const Shape& s = hidden.shape();
    if (s.rank() < 2 || s.rows() > 100) return;
    const int64_t classes = 1 + layers_.below(70);
    std::vector<int64_t> rows(s.begin(), s.end() - 1);
    const Expr w =
        param(hidden.graph(), "classes", hidden.dtype() == DType::F32 ? DType::F32 : DType::BF16, {classes, s[-1]});
    const auto chunk = static_cast<int64_t>(1 + layers_.below(40));
    const nn::CrossEntropy loss =
        nn::cross_entropy(hidden, w, layers_.index_below(classes, Shape(rows)), chunk, layers_.next_stage());
    results.push_back({"loss", loss.loss});
    results.push_back({"d_hidden", loss.d_hidden});
    results.push_back({"d_weight", loss.d_weight});
  }

  Layers layers_;
  ProgramSize size_;
  std::vector<Expr> values_;
};

}  // namespace

std::vector<Expr> Program::roots() const {
  std::vector<Expr> out;
  for (const Result& r : results) out.push_back(r.value);
  return out;
}

std::string Program::text() const { return print(roots()); }

Program random_program(uint32_t seed, const ProgramSize& size) {
  Program p{std::make_shared<Graph>(), {}};
  p.results = Grower(*p.graph, seed, size).grow();
  using Rule = PrecisionPolicy::Rule;
  constexpr std::array kRules{Rule::E4m3Rows, Rule::I8Weights, Rule::BF16, Rule::F16, Rule::F32};
  std::mt19937 random(seed ^ 0x2545f491u);
  return random() % 4 ? p : with_precision(p, {.rule = kRules[random() % kRules.size()]}, random() % 2 == 0);
}

Program with_precision(const Program& program, const PrecisionPolicy& policy, bool copies) {
  Program out{program.graph, {}};
  const std::vector<Expr> roots = set_precision(*program.graph, program.roots(), policy, copies);
  for (size_t i = 0; i < roots.size(); ++i) out.results.push_back({program.results[i].name, roots[i]});
  return out;
}

HostTensor leaf_tensor(const Expr& leaf) {
  const std::string& name = leaf->attrs.text;
  const Shape& s = leaf.shape();
  std::mt19937 random(hash_of(name + std::string(name_of(leaf.dtype())) + leaf.shape().str()));
  std::vector<double> values(static_cast<size_t>(leaf.shape().numel()));
  if (leaf.dtype() == DType::I8) {
    for (double& v : values) v = static_cast<double>(random() % 255) - 127;
    return HostTensor::from(DType::I8, s, values);
  }
  if (!is_float(leaf.dtype())) {
    const auto limit = static_cast<uint32_t>(std::stoul(name.substr(name.find_first_of("0123456789"))));
    if (name.starts_with("place")) {
      std::vector<double> all(limit);
      std::iota(all.begin(), all.end(), 0);
      std::ranges::shuffle(all, random);
      std::copy_n(all.begin(), values.size(), values.begin());
    } else {
      for (double& v : values) v = static_cast<double>(random() % limit);
    }
    return HostTensor::from(leaf.dtype(), s, values);
  }
  if (name.starts_with("rule")) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::array<std::array<double, 4>, 4>{
          {{0, 0.7, 1, 1.5}, {0, 0, 1, 20}, {1, 1, 0.9, 0.5}, {0, 0, 0.1, 0.05}}}[i % 4][random() % 4];
    return HostTensor::from(leaf.dtype(), s, values);
  }
  const int64_t terms = !leaf.is<nodes::Param>() || s.rank() < 2 ? 1 : s.rank() == 4 ? s[1] * s[2] * s[3] : s[-1];
  std::normal_distribution<double> normal(0, 1 / std::sqrt(static_cast<double>(std::max<int64_t>(terms, 1))));
  for (double& v : values) v = normal(random);
  if (name.starts_with("odd") && !values.empty())
    for (const double odd : std::initializer_list<double>{INFINITY, -INFINITY, NAN, -0.0, 0x1p-20})
      if (random() % 2) values[random() % values.size()] = odd;
  return HostTensor::from(leaf.dtype(), s, values);
}

std::map<std::string, HostTensor> leaf_tensors(std::span<const Expr> roots) {
  std::map<std::string, HostTensor> out;
  for (const Expr& e : topological(roots))
    if (is_memory_leaf(e)) out.emplace(e->attrs.text, leaf_tensor(e));
  return out;
}

}  // namespace tenon::planned
