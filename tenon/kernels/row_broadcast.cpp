#include "tenon/kernels/row_broadcast.h"

#include <algorithm>

#include "tenon/expr/ops.h"
#include "tenon/kernels/view_facts.h"

namespace tenon {
namespace {

// (coordinate of `axis` / divisor) % extent, times weight.
struct RowDigit {
  int axis;
  int64_t extent, divisor, weight;
};

// base + digits + an unknown number in [0, unknown].
struct RowIndex {
  int64_t base = 0, unknown = 0;
  std::vector<RowDigit> digits = {};
};

// The algebra that tells whether views leave rows where they are: it knows what coordinates depend on row numbers, and
// only how far they may depend on anything else.
class KeptRows final : public SymbolicAlgebra<RowIndex> {
 public:
  KeptRows(const Expr& e, const Expr& broadcast) : broadcast_(broadcast), shape_(e.shape()) {
    Indices c{};
    for (int a = 0; a < shape_.rank(); ++a) {
      const bool row = a + 1 < shape_.rank() && shape_[a] > 1;
      c[static_cast<size_t>(a)] = row ? hold({0, 0, {{a, shape_[a], 1, 1}}}) : anything(shape_[a]);
    }
    follow(e, c);
  }

  bool kept = false;

  Index number(int64_t n) override { return hold({n}); }
  Index plus(Index i, int64_t n) override {
    RowIndex v = held(i);
    v.base += n;
    return hold(std::move(v));
  }
  Index times(Index i, int64_t n) override {
    RowIndex v = held(i);
    v.base *= n;
    v.unknown *= n;
    for (RowDigit& d : v.digits) d.weight *= n;
    return hold(std::move(v));
  }
  Index sum(Index i, Index j) override {
    RowIndex v = held(i);
    const RowIndex& w = held(j);
    v.base += w.base;
    v.unknown += w.unknown;
    v.digits.insert(v.digits.end(), w.digits.begin(), w.digits.end());
    return hold(std::move(v));
  }
  Index reversed(Index, int64_t n) override { return anything(n); }
  Divided divided(Index i, int64_t n) override {
    const RowIndex v = held(i);
    RowIndex quotient{v.base / n}, remainder{v.base % n, v.unknown};
    int64_t most = remainder.base + remainder.unknown;
    for (RowDigit d : v.digits) {
      if (d.weight % n == 0) {
        d.weight /= n;
        quotient.digits.push_back(d);
        continue;
      }
      const int64_t low = n / d.weight;  // positions of the digit before it reaches into the quotient
      if (n % d.weight == 0 && d.extent > low && d.extent % low == 0) {
        quotient.digits.push_back({d.axis, d.extent / low, d.divisor * low, 1});
        d.extent = low;
      }
      most += (d.extent - 1) * d.weight;
      remainder.digits.push_back(d);
    }
    if (most < n) return {hold(std::move(quotient)), hold(std::move(remainder))};
    quotient.unknown += most / n;
    return {hold(std::move(quotient)), anything(n)};
  }
  Index nearest(Index, int64_t from, int64_t) override { return anything(from); }
  // Without the view, an index out of range would go unnoticed.
  Index look_up(int, const Indices&, int64_t) override { return elsewhere_ = true, number(0); }
  Index inside(Index i, int64_t, int64_t) override {
    elsewhere_ = true;  // zeros are not the broadcast's
    return i;
  }
  void part(Index, std::span<const int64_t>, InPart) override {}
  void read(int operand, const Indices& c) override { follow(view_->in[static_cast<size_t>(operand)], c); }

 private:
  Index anything(int64_t extent) { return hold({0, extent - 1}); }

  void follow(const Expr& e, const Indices& c) {
    view_ = e.get();
    // A gather's table may be empty: nothing can be divided by its extents.
    if (elsewhere_ || std::ranges::any_of(e->in, [](const Expr& x) { return x.shape().numel() == 0; })) return;
    if (e != broadcast_) return e->type->map(*e, *this, c);
    kept = true;
    for (int a = 0; a + 1 < shape_.rank(); ++a) kept = kept && is_row(held(c[static_cast<size_t>(a)]), a);
  }

  // True for exactly the row's coordinate on this axis.
  bool is_row(RowIndex v, int axis) const {
    int64_t covered = 1;
    std::ranges::sort(v.digits, {}, &RowDigit::divisor);
    for (const RowDigit& d : v.digits) {
      if (d.axis != axis || d.divisor != covered || d.weight != covered) return false;
      covered *= d.extent;
    }
    return v.base == 0 && v.unknown == 0 && covered == shape_[axis];
  }

  const Expr& broadcast_;
  const Shape& shape_;
  const Node* view_ = nullptr;  // being followed
  bool elsewhere_ = false;
};

}  // namespace

bool is_row_broadcast(const Expr& e) {
  return e.is<nodes::Broadcast>() && e->in[0]->family() == Family::Reduce && e->in[0]->in[0].shape() == e.shape();
}

Expr row_broadcast_below(Expr e) {
  while (e->family() == Family::View && !is_row_broadcast(e) && !(e->in.size() > 1 && view_facts(e).joins))
    e = e->in[0];
  return is_row_broadcast(e) ? e : Expr();
}

bool keeps_rows(const Expr& e, const Expr& broadcast) {
  return e.shape() == broadcast.shape() && e.shape().numel() > 0 && KeptRows(e, broadcast).kept;
}

}  // namespace tenon
