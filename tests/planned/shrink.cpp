#include "tests/planned/shrink.h"

#include <optional>
#include <set>

#include "tenon/expr/ops.h"

namespace tenon::planned {
namespace {

// The program with `node` replaced, in a new graph; empty if that is not a valid program.
std::optional<Program> with(const Program& p, const Expr& node, const std::function<Expr(Graph&)>& replacement) {
  Program out{std::make_shared<Graph>(), {}};
  Memo memo;
  const Replace replace = [&](const Expr& e, std::span<const Expr>) {
    return e == node ? replacement(*out.graph) : Expr();
  };
  try {
    for (const Result& r : p.results) out.results.push_back({r.name, rebuild(*out.graph, r.value, replace, memo)});
  } catch (const std::exception&) {
    return {};
  }
  for (size_t i = 0; i < out.results.size(); ++i) {
    if (out.results[i].value->family() == Family::Leaf) return {};
    for (size_t j = 0; j < i; ++j)
      if (out.results[i].value == out.results[j].value) return {};
  }
  return out;
}

// What indices and counts are computed from: other numbers there would make another program.
std::set<const Node*> addresses_in(const Program& p) {
  std::vector<Expr> indices;
  for (const Expr& e : topological(p.roots()))
    for (const Expr& x : e->in)
      if (!is_float(x.dtype()) && is_float(e.dtype())) indices.push_back(x);
  std::set<const Node*> out;
  for (const Expr& e : topological(indices)) out.insert(e.get());
  return out;
}

class Shrinker {
 public:
  Shrinker(Program p, const Fails& fails, int tries) : best_(std::move(p)), fails_(fails), tries_(tries) {}

  Program run() {
    for (bool progress = true; progress && tries_ > 0;) {
      progress = drop_results();
      progress = cut_nodes() || progress;
    }
    return std::move(best_);
  }

 private:
  bool take(std::optional<Program> p) {
    if (!p || tries_-- <= 0 || !fails_(*p)) return false;
    best_ = std::move(*p);
    return true;
  }

  bool drop_results() {
    bool any = false;
    for (size_t i = best_.results.size(); i-- > 0 && best_.results.size() > 1;) {
      Program p = best_;
      p.results.erase(p.results.begin() + static_cast<ptrdiff_t>(i));
      any = take(std::move(p)) || any;
    }
    return any;
  }

  // Replaces every node by a leaf, or by an operand of the same shape and type.
  bool cut_nodes() {
    const std::set<const Node*> addresses = addresses_in(best_);
    for (const Expr& e : nodes()) {
      if (e->family() == Family::Leaf || addresses.contains(e.get())) continue;
      std::string name = is_float(e.dtype()) ? "cut" : "index1_cut";
      name += std::to_string(e->id) + "_" + std::to_string(tries_);
      if (take(with(best_, e, [&](Graph& g) { return input(g, name, e.dtype(), e.shape()); }))) return true;
      for (const Expr& x : e->in) {
        Memo memo;
        const auto copy = [&](Graph& g) { return rebuild(g, x, memo); };
        if (x.shape() == e.shape() && x.dtype() == e.dtype() && take(with(best_, e, copy))) return true;
      }
    }
    return false;
  }

  std::vector<Expr> nodes() const { return topological(best_.roots()); }

  Program best_;
  const Fails& fails_;
  int tries_;
};

}  // namespace

Program shrink(Program program, const Fails& fails, int tries) {
  return Shrinker(std::move(program), fails, tries).run();
}

}  // namespace tenon::planned
