#include "tenon/nn/low_rank.h"

#include <array>

#include "tenon/expr/ops.h"

namespace tenon::nn {
namespace {

constexpr std::string_view kWeight = ".weight";

std::string beside(std::string_view weight, std::string_view name) {
  TENON_CHECK(Internal, weight.ends_with(kWeight), "side branch") << "'" << weight << "' is not a layer's weight";
  return std::string(weight.substr(0, weight.size() - kWeight.size())).append(name).append(kWeight);
}

// A parameter that is part of a layer's matrix, and whether it gets a branch.
struct Part {
  Expr weight;
  std::string name;
  bool wanted = false;
};

// The stacked parameters; none if the matrix is made in another way, or no branch is wanted.
std::vector<Part> parts_of(const Expr& weight, const std::set<std::string>& wanted) {
  std::vector<Expr> matrices{weight};
  if (weight.is<nodes::Concat>() && weight->attrs.ints[0] == 0) matrices.assign(weight->in.begin(), weight->in.end());
  std::vector<Part> out;
  for (const Expr& matrix : matrices) {
    const Expr leaf = matrix.is<nodes::Reshape>() ? matrix->in[0] : matrix;  // a 1x1 filter is a matrix
    if (!leaf.is<nodes::Param>() || matrix.shape().rank() != 2) return {};
    out.push_back({matrix, leaf->attrs.text, wanted.contains(leaf->attrs.text)});
  }
  if (std::ranges::none_of(out, &Part::wanted)) return {};
  return out;
}

// Joins the branches of several weights in two products: A matrices stacked, B matrices block-diagonal. Rows of parts
// without a branch become zero rows above the next B or below the last.
Expr branch(const Expr& x, const std::vector<Part>& parts, const SideBranches& branches) {
  Graph& g = x.graph();
  const int64_t rank = branches.rank, count = std::ranges::count_if(parts, &Part::wanted);
  std::vector<Expr> down, up;
  int64_t zeros = 0;
  for (const Part& p : parts) {
    if (!p.wanted) {
      zeros += p.weight.shape()[0];
      continue;
    }
    const auto before = static_cast<int64_t>(up.size()) * rank, behind = (count - 1) * rank - before;
    down.push_back(param(g, side_down(p.name), p.weight.dtype(), {rank, p.weight.shape()[1]}));
    const Expr b = param(g, side_up(p.name), p.weight.dtype(), {p.weight.shape()[0], rank});
    up.push_back(zeros + before + behind > 0 ? pad(b, {zeros, 0, before, behind}) : b);
    zeros = 0;
  }
  if (zeros > 0) up.back() = pad(up.back(), {0, zeros, 0, 0});
  const Expr a = concat(down, 0), b = concat(up, 0), y = tenon::linear(x, a);
  return tenon::linear(cast(branches.scale == 1 ? y : y * branches.scale, b.dtype()), b);
}

}  // namespace

std::string weight_beside(std::string_view side) {
  for (const std::string_view end : {kSideDown, kSideUp})
    if (side.ends_with(end)) return std::string(side.substr(0, side.size() - end.size())) + std::string(kWeight);
  return {};
}

std::string side_down(std::string_view weight) { return beside(weight, ".lora_A"); }
std::string side_up(std::string_view weight) { return beside(weight, ".lora_B"); }

SideBranches branches_of(const LowRank& adapter, const Expr& root) {
  if (adapter.rank == 0) return {};
  std::set<std::string> weights;
  for (const Expr& e : topological(std::array{root})) {
    if (!e.is<nodes::Param>() || !e->attrs.text.ends_with(kWeight)) continue;
    const std::string_view layer = std::string_view(e->attrs.text).substr(0, e->attrs.text.size() - kWeight.size());
    const size_t dot = layer.rfind('.');
    if (adapter.has(dot == layer.npos ? layer : layer.substr(dot + 1))) weights.insert(e->attrs.text);
  }
  return {adapter.rank, std::make_shared<const std::set<std::string>>(std::move(weights)), adapter.scale};
}

Expr with_side_branches(const Expr& root, const SideBranches& branches) {
  return with_side_branches(std::array{root}, branches)[0];
}

std::vector<Expr> with_side_branches(std::span<const Expr> roots, const SideBranches& branches) {
  if (roots.empty() || branches.rank == 0 || !branches.weights) return {roots.begin(), roots.end()};
  Graph& g = roots[0].graph();
  const Replace replace = [&](const Expr& e, std::span<const Expr> in) -> Expr {
    // If the result is then rounded, round it before adding the branch too: this halves the bytes stored until the
    // branch is added, and with a branch of zeros the numbers are unchanged.
    if (e.is<nodes::Cast>() && e->in[0].is<nodes::Linear>() && in[0].is<nodes::Add>())
      return cast(cast(in[0]->in[0], e.dtype()) + in[0]->in[1], e.dtype());
    if (!e.is<nodes::Linear>()) return {};
    const std::vector<Part> parts = parts_of(in[1], *branches.weights);
    if (parts.empty()) return {};
    return g.make(*e->type, in, e->attrs) + branch(in[0], parts, branches);
  };
  return rebuild(g, roots, replace);
}

}  // namespace tenon::nn
