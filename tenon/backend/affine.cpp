#include "tenon/backend/affine.h"

#include <algorithm>
#include <limits>

#include "tenon/expr/node_type.h"

namespace tenon {
namespace {

constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 2;

// digit = (coordinate of `axis`, counted from the corner of a box, / divisor) % extent, counted from its end if
// `reversed`; times `weight`, which is positive.
struct Term {
  int axis;
  int64_t extent, divisor, weight;
  bool reversed = false;

  // The stride of the digit and, for a falling digit, its start.
  int64_t stride() const { return reversed ? -weight : weight; }
  int64_t start() const { return reversed ? (extent - 1) * weight : 0; }
};

// A part of the domain.
struct Box {
  Coord begin{}, extent{};
  bool operator==(const Box& o) const = default;
};

// base + sum of terms, valid within `box`.
struct Linear {
  int64_t base = 0;
  std::vector<Term> terms = {};
  Box box = {};
};

// The algebra for views: sums of digits of the domain's coordinates. A cut of the domain narrows the box; each operand
// reached this way becomes a piece.
class Affine final : public SymbolicAlgebra<Linear> {
 public:
  Affine(const Shape& domain, int split, bool looked_up) : domain_(domain), split_(split), looked_up_(looked_up) {
    for (int a = 0; a < domain.rank(); ++a) box_.extent[static_cast<size_t>(a)] = domain[a];
  }

  bool build(const Expr& view) {
    Indices c{};
    const int lead = domain_.rank() - view.shape().rank();
    for (int a = 0; a < view.shape().rank(); ++a) {
      Linear i{0, {}, box_};
      if (view.shape()[a] != 1) i.terms.push_back({a + lead, domain_[a + lead], 1, 1});
      c[static_cast<size_t>(a)] = hold(i);
    }
    follow(view, c);
    std::ranges::sort(pieces, {}, [](const AffinePiece& p) { return std::pair(p.row_begin, p.col_begin); });
    return !failed_;
  }

  std::vector<AffinePiece> pieces;

  Index number(int64_t n) override { return hold({n, {}, box_}); }
  Index times(Index i, int64_t n) override {
    Linear v = now(i);
    v.base *= n;
    for (Term& t : v.terms) t.weight *= n;
    if (n == 0) v.terms.clear();
    return hold(std::move(v));
  }
  Index sum(Index i, Index j) override {
    Linear v = now(i);
    const Linear w = now(j);
    v.base += w.base;
    v.terms.insert(v.terms.end(), w.terms.begin(), w.terms.end());
    return hold(std::move(v));
  }
  Index reversed(Index i, int64_t n) override {
    Linear v = now(i);
    v.base = n - 1 - most(v);
    for (Term& t : v.terms) t.reversed = !t.reversed;
    return hold(std::move(v));
  }
  Divided divided(Index i, int64_t n) override {
    const Linear v = now(i);
    if (n <= 0) return fail(), Divided{i, i};
    Linear quotient{v.base / n, {}, box_}, remainder{v.base % n, {}, box_};
    for (Term t : v.terms) {
      if (t.extent == 1) continue;
      if (t.weight % n == 0) {
        t.weight /= n;
        quotient.terms.push_back(t);
        continue;
      }
      if (t.weight * t.extent > n) {  // reaches into the quotient: split it there
        const int64_t low = n / t.weight;
        if (n % t.weight || t.extent % low) return fail(), Divided{i, i};
        quotient.terms.push_back({t.axis, t.extent / low, t.divisor * low, 1, t.reversed});
        t.extent = low;
      }
      remainder.terms.push_back(t);
    }
    if (most(remainder) >= n) fail();  // would carry
    return {hold(std::move(quotient)), hold(std::move(remainder))};
  }
  Index nearest(Index i, int64_t, int64_t) override { return fail(), i; }
  // Represented as a digit of an extra axis after the domain's, which cuts do not affect.
  Index look_up(int operand, const Indices& c, int64_t extent) override {
    const size_t before = pieces.size(), axis = static_cast<size_t>(domain_.rank()) + look_ups_.size();
    if (failed_ || nothing_ || !looked_up_ || extent == 0 || axis >= Box().begin.size()) return fail(), c[0];
    const Box whole = box_;
    follow(view_->in[static_cast<size_t>(operand)], c);
    if (failed_ || pieces.size() != before + 1 || box_ != whole) return fail(), c[0];
    const AffinePiece at = std::move(pieces.back());
    pieces.pop_back();
    const auto still = [](const Digit& d) { return d.stride == 0; };
    if (!is_memory_leaf(at.leaf) || !at.look_ups.empty() || !std::ranges::all_of(at.cols, still)) return fail(), c[0];
    look_ups_.push_back({at.leaf, at.offset, at.rows, extent, 1});
    return hold({0, {{static_cast<int>(axis), extent, 1, 1}}, box_});
  }

  Index inside(Index i, int64_t begin, int64_t extent) override {
    if (failed_ || nothing_) return i;
    const Linear v = now(i);
    const Box whole = box_;
    for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, begin}, {begin + extent, kFar}}) {
      if (narrow(v, first, last)) pieces.push_back(zeros());
      box_ = whole;
    }
    nothing_ = !narrow(v, begin, begin + extent);
    return nothing_ ? i : plus(i, -begin);
  }
  void part(Index i, std::span<const int64_t> extents, InPart body) override {
    const Linear v = now(i);
    const Box whole = box_;
    int64_t begin = 0;
    for (size_t k = 0; k < extents.size() && !failed_; begin += extents[k++]) {
      if (narrow(v, begin, begin + extents[k])) body(static_cast<int>(k), plus(i, -begin));
      box_ = whole;
    }
  }
  void read(int operand, const Indices& c) override {
    if (!failed_ && !nothing_) follow(view_->in[static_cast<size_t>(operand)], c);
  }

 private:
  void fail() { failed_ = true; }

  static int64_t most(const Linear& v) {
    int64_t out = v.base;
    for (const Term& t : v.terms) out += (t.extent - 1) * t.weight;
    return out;
  }

  void follow(const Expr& e, const Indices& c) {
    if (e->family() == Family::Leaf) return emit(e, c);
    const Node* view = std::exchange(view_, e.get());
    const bool nothing = std::exchange(nothing_, false);
    const Box box = box_;
    e->type->map(*e, *this, c);
    box_ = box;
    nothing_ = nothing;
    view_ = view;
  }

  // The index within the current box, which may be a part of the box it was computed in.
  Linear now(Index i) {
    if (failed_) return {0, {}, box_};
    Linear v = held(i);
    if (v.box == box_) return v;
    for (Term& t : v.terms) {
      const size_t a = static_cast<size_t>(t.axis);
      const int64_t shift = box_.begin[a] - v.box.begin[a], extent = box_.extent[a], period = t.divisor * t.extent;
      if (shift % period == 0 && extent % period == 0) continue;
      const int64_t first = shift / t.divisor % t.extent, seen = extent / t.divisor;
      if (shift % t.divisor || extent % t.divisor || first + seen > t.extent) {
        fail();
        return v;
      }
      v.base += t.weight * (t.reversed ? t.extent - first - seen : first);
      t.extent = seen;
    }
    v.box = box_;
    return v;
  }

  // Narrows the box to where v is in [begin, end); false if that is empty. Only a whole axis can be cut.
  bool narrow(const Linear& v, int64_t begin, int64_t end) {
    if (v.terms.empty()) return v.base >= begin && v.base < end;
    const Term& t = v.terms[0];
    const size_t a = static_cast<size_t>(t.axis);
    if (v.terms.size() > 1 || t.weight != 1 || t.extent * t.divisor != box_.extent[a]) return fail(), false;
    const int64_t first = std::max<int64_t>(begin - v.base, 0), last = std::min(end - v.base, t.extent);
    if (first >= last) return false;
    box_.begin[a] += (t.reversed ? t.extent - last : first) * t.divisor;
    box_.extent[a] = (last - first) * t.divisor;
    return true;
  }

  AffinePiece zeros() {
    AffinePiece p;
    place(p);
    p.rows = {{std::max<int64_t>(p.row_end - p.row_begin, 1), 0}};
    p.cols = {{std::max<int64_t>(p.col_end - p.col_begin, 1), 0}};
    return p;
  }

  void emit(const Expr& leaf, const Indices& c) {
    AffinePiece p;
    const Coord strides = leaf.shape().strides();
    std::vector<Term> terms;
    for (int a = 0; a < leaf.shape().rank(); ++a) {
      const Linear v = now(times(c[static_cast<size_t>(a)], strides[static_cast<size_t>(a)]));
      p.offset += v.base;
      for (const Term& t : v.terms) {
        if (t.axis >= domain_.rank()) {
          add_look_up(t, p);
          continue;
        }
        p.offset += t.start();
        terms.push_back(t);
      }
    }
    place(p);
    std::ranges::sort(terms, std::ranges::greater{}, &Term::divisor);
    digits(terms, 0, split_, p.rows);
    digits(terms, split_, domain_.rank(), p.cols);
    p.leaf = leaf;
    pieces.push_back(std::move(p));
  }

  void add_look_up(const Term& t, AffinePiece& p) {
    LookedUp number = look_ups_[static_cast<size_t>(t.axis - domain_.rank())];
    if (t.divisor != 1 || t.extent != number.extent || t.reversed) return fail();
    number.stride = t.weight;
    p.look_ups.push_back(std::move(number));
  }

  // Row and column range of the box: only the leading axis of each group may be restricted.
  void place(AffinePiece& p) {
    range(0, split_, p.row_begin, p.row_end);
    range(split_, domain_.rank(), p.col_begin, p.col_end);
  }

  void range(int first, int last, int64_t& begin, int64_t& end) {
    begin = 0;
    end = 1;
    bool leading = true;
    for (int axis = first; axis < last; ++axis) {
      const size_t a = static_cast<size_t>(axis);
      if (box_.extent[a] != domain_[axis] && !leading) return fail();
      begin = leading ? box_.begin[a] : begin * domain_[axis];
      end = leading ? box_.begin[a] + box_.extent[a] : end * domain_[axis];
      leading = leading && domain_[axis] == 1;
    }
  }

  // `terms`: highest digits first.
  void digits(const std::vector<Term>& terms, int first, int last, std::vector<Digit>& out) {
    for (int a = first; a < last; ++a) {
      int64_t left = box_.extent[static_cast<size_t>(a)];
      for (const Term& t : terms) {
        if (t.axis != a) continue;
        if (left % (t.divisor * t.extent)) return fail();
        append(out, {left / (t.divisor * t.extent), 0});
        append(out, {t.extent, t.stride()});
        left = t.divisor;
      }
      append(out, {left, 0});
    }
    if (out.empty()) out.push_back({1, 0});
  }

  // Appends a lower digit, merged with the last one if a single stride serves both.
  static void append(std::vector<Digit>& out, Digit d) {
    if (d.extent == 1) return;
    if (!out.empty() && out.back().stride == d.stride * d.extent)
      out.back() = {out.back().extent * d.extent, d.stride};
    else
      out.push_back(d);
  }

  const Shape& domain_;
  int split_;
  Box box_;  // the box being followed
  const Node* view_ = nullptr;
  bool looked_up_;
  std::vector<LookedUp> look_ups_;
  bool failed_ = false;
  bool nothing_ = false;  // of view_'s operand is in the box
};

}  // namespace

std::optional<std::vector<AffinePiece>> affine_pieces(const Expr& view, const Shape& domain, int split,
                                                      bool looked_up) {
  if (domain.numel() == 0) return std::nullopt;
  Affine affine(domain, split, looked_up);
  if (!affine.build(view)) return std::nullopt;
  return std::move(affine.pieces);
}

std::optional<Coord> axis_strides(std::vector<Digit> digits, const Shape& domain) {
  Coord strides{};
  for (int a = domain.rank() - 1; a >= 0; --a) {
    if (domain[a] == 1) continue;
    if (digits.empty() || digits.back().extent % domain[a]) return std::nullopt;
    Digit& d = digits.back();
    strides[static_cast<size_t>(a)] = d.stride;
    d = {d.extent / domain[a], d.stride * domain[a]};
    if (d.extent == 1) digits.pop_back();
  }
  return strides;
}

}  // namespace tenon
