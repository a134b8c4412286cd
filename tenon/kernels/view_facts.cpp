#include "tenon/kernels/view_facts.h"

#include "tenon/core/error.h"
#include "tenon/expr/node_type.h"

namespace tenon {
namespace {

// Ignores the indices: only the operations matter.
class Facts final : public IndexAlgebra {
 public:
  ViewFacts found;

  Index number(int64_t) override { return {}; }
  Index times(Index i, int64_t) override { return i; }
  Index sum(Index i, Index) override { return i; }
  Index reversed(Index i, int64_t) override { return i; }
  Divided divided(Index i, int64_t) override { return {i, i}; }
  Index nearest(Index i, int64_t, int64_t) override { return i; }
  Index inside(Index i, int64_t, int64_t) override {
    found.fills = true;
    return i;
  }
  void part(Index i, std::span<const int64_t> extents, InPart body) override {
    for (size_t k = 0; k < extents.size(); ++k) body(static_cast<int>(k), i);
  }
  Index look_up(int, const Indices&, int64_t) override {
    found.looks_up = true;
    return {};
  }
  void read(int operand, const Indices&) override {
    found.joins = found.joins || (operand_ >= 0 && operand != operand_);
    operand_ = operand;
  }

 private:
  int operand_ = -1;
};

}  // namespace

ViewFacts view_facts(const Expr& e) {
  TENON_CHECK(Internal, e->family() == Family::View, "view") << e->name() << " is not a view";
  Facts facts;
  e->type->map(*e, facts, {});
  return facts.found;
}

bool is_view_chain(const Expr& e) {
  Expr x = e;
  while (x->family() == Family::View && x->in.size() == 1) x = x->in[0];
  if (x->family() != Family::View) return x->family() == Family::Leaf;
  const auto computes = [](const Expr& y) { return y->family() != Family::View && y->family() != Family::Leaf; };
  return !any_below({x}, computes, [](const Expr&) { return true; });
}

}  // namespace tenon
