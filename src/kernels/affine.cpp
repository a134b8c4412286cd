#include "tenon/kernels/affine.h"

#include <algorithm>

#include "tenon/expr/ops.h"

namespace tenon {
namespace {

// digit = (coordinate of `axis` / divisor) % extent, times `weight`.
struct Term {
  int axis;
  int64_t extent, divisor, weight;
};

// A coordinate of the tensor under view: base + sum of terms. No digit of the domain is in two coordinates.
struct Linear {
  int64_t base = 0;
  std::vector<Term> terms;
};

// A box of the domain and the coordinates of the tensor under view there. Terms count from the box's corner.
struct State {
  std::vector<Linear> coords;
  Coord begin{}, extent{};
};

class Builder {
 public:
  Builder(const Shape& domain, int split) : domain_(domain), split_(split) {}

  bool build(const Expr& view) {
    State s;
    for (int a = 0; a < domain_.rank(); ++a) s.extent[a] = domain_[a];
    const int lead = domain_.rank() - view.shape().rank();
    for (int a = 0; a < view.shape().rank(); ++a) {
      Linear c;
      const int axis = a + lead;
      if (view.shape()[a] != 1) c.terms.push_back({axis, domain_[axis], 1, 1});
      s.coords.push_back(c);
    }
    return descend(view, std::move(s));
  }

  std::vector<AffinePiece> pieces;

 private:
  bool descend(const Expr& e, State s) {
    if (e->family() == Family::Leaf) return emit(e, s);
    if (e.is<nodes::Concat>()) return concat(e, s);
    if (e.is<nodes::Pad>()) return pad(e, s, 0);
    bool good = false;
    if (e.is<nodes::Slice>())
      good = slice(*e, s);
    else if (e.is<nodes::Permute>())
      good = permute(*e, s);
    else if (e.is<nodes::Broadcast>())
      good = broadcast(*e, s);
    else if (e.is<nodes::Reshape>())
      good = reshape(*e, s);
    else if (e.is<nodes::Resize>())
      good = resize(*e, s);
    return good && descend(e->in[0], std::move(s));
  }

  static bool slice(const Node& n, State& s) {
    s.coords[static_cast<size_t>(n.attrs.ints[0])].base += n.attrs.ints[1];
    return true;
  }

  static bool permute(const Node& n, State& s) {
    std::vector<Linear> out(s.coords.size());
    for (size_t i = 0; i < out.size(); ++i) out[static_cast<size_t>(n.attrs.ints[i])] = s.coords[i];
    s.coords = std::move(out);
    return true;
  }

  static bool broadcast(const Node& n, State& s) {
    const Shape& from = n.in[0].shape();
    s.coords.erase(s.coords.begin(), s.coords.begin() + (n.shape.rank() - from.rank()));
    for (int a = 0; a < from.rank(); ++a)
      if (from[a] == 1) s.coords[static_cast<size_t>(a)] = {};
    return true;
  }

  // Twice the size: an even position and the one behind it read the same element.
  static bool resize(const Node& n, State& s) {
    const Shape& from = n.in[0].shape();
    for (int a = 1; a <= 2; ++a) {
      if (n.shape[a] == from[a]) continue;
      Linear& c = s.coords[static_cast<size_t>(a)];
      if (n.shape[a] != 2 * from[a] || c.base % 2) return false;
      std::vector<Term> halved;
      for (Term t : c.terms) {
        if (t.weight % 2) {
          if (t.weight != 1 || t.extent % 2) return false;
          t = {t.axis, t.extent / 2, t.divisor * 2, 2};
        }
        t.weight /= 2;
        if (t.extent > 1) halved.push_back(t);
      }
      c = {c.base / 2, std::move(halved)};
    }
    return true;
  }

  static bool reshape(const Node& n, State& s) {
    const Shape& from = n.in[0].shape();
    const Coord strides = n.shape.strides();
    int64_t base = 0;
    std::vector<Term> terms;
    for (size_t a = 0; a < s.coords.size(); ++a) {
      base += s.coords[a].base * strides[a];
      for (Term t : s.coords[a].terms) {
        t.weight *= strides[a];
        if (t.extent > 1) terms.push_back(t);
      }
    }
    const Coord to = from.strides();
    s.coords.assign(static_cast<size_t>(from.rank()), {});
    for (int a = 0; a < from.rank(); ++a) s.coords[static_cast<size_t>(a)].base = base / to[a] % from[a];
    while (!terms.empty()) {
      const Term t = terms.back();
      terms.pop_back();
      int a = 0;
      while (a < from.rank() && (from[a] == 1 || to[a] > t.weight)) ++a;
      if (a == from.rank() || t.weight % to[a]) return false;
      const int64_t limit = to[a] * from[a];
      Term low = t;
      if (t.weight * t.extent > limit) {  // reaches into the next axis: split it there
        const int64_t m = limit / t.weight;
        if (limit % t.weight || t.extent % m) return false;
        low.extent = m;
        terms.push_back({t.axis, t.extent / m, t.divisor * m, limit});
      }
      low.weight /= to[a];
      if (low.extent > 1) s.coords[static_cast<size_t>(a)].terms.push_back(low);
    }
    return no_carry(from, s);
  }

  static bool no_carry(const Shape& shape, const State& s) {
    for (int a = 0; a < shape.rank(); ++a) {
      int64_t most = s.coords[static_cast<size_t>(a)].base;
      for (const Term& t : s.coords[static_cast<size_t>(a)].terms) most += (t.extent - 1) * t.weight;
      if (most >= shape[a]) return false;
    }
    return true;
  }

  // Restricts the box to where coordinate `axis` is in [lo, hi). `empty` if that is nowhere; false if it is not a box.
  bool restrict_to(State& s, int axis, int64_t lo, int64_t hi, bool& empty) const {
    Linear& c = s.coords[static_cast<size_t>(axis)];
    if (c.terms.empty()) {
      empty = c.base < lo || c.base >= hi;
      return true;
    }
    Term& t = c.terms[0];
    const size_t a = static_cast<size_t>(t.axis);
    if (c.terms.size() > 1 || t.weight != 1 || t.extent * t.divisor != s.extent[a]) return false;
    const int64_t first = std::max<int64_t>(lo - c.base, 0), last = std::min(hi - c.base, t.extent);
    empty = first >= last;
    if (empty || last - first == t.extent) return true;
    s.begin[a] += first * t.divisor;
    s.extent[a] = (last - first) * t.divisor;
    c.base += first;
    t.extent = last - first;
    return true;
  }

  bool concat(const Expr& e, const State& s) {
    const int axis = static_cast<int>(e->attrs.ints[0]);
    int64_t begin = 0;
    for (const Expr& x : e->in) {
      State part = s;
      bool empty = false;
      if (!restrict_to(part, axis, begin, begin + x.shape()[axis], empty)) return false;
      part.coords[static_cast<size_t>(axis)].base -= begin;
      if (!empty && !descend(x, std::move(part))) return false;
      begin += x.shape()[axis];
    }
    return true;
  }

  bool pad(const Expr& e, const State& s, int axis) {
    if (axis == e.shape().rank()) {
      State inside = s;
      for (int a = 0; a < axis; ++a)
        inside.coords[static_cast<size_t>(a)].base -= e->attrs.ints[2 * static_cast<size_t>(a)];
      return descend(e->in[0], std::move(inside));
    }
    const int64_t lo = e->attrs.ints[2 * static_cast<size_t>(axis)], hi = lo + e->in[0].shape()[axis];
    const int64_t cuts[4] = {0, lo, hi, e.shape()[axis]};
    for (int i = 0; i < 3; ++i) {
      if (cuts[i] == cuts[i + 1]) continue;
      State part = s;
      bool empty = false;
      if (!restrict_to(part, axis, cuts[i], cuts[i + 1], empty)) return false;
      if (!empty && !(i == 1 ? pad(e, part, axis + 1) : emit_zeros(part))) return false;
    }
    return true;
  }

  bool emit_zeros(const State& s) {
    AffinePiece p;
    if (!place(p, s)) return false;
    p.rows = {{std::max<int64_t>(p.row_end - p.row_begin, 1), 0}};
    p.cols = {{std::max<int64_t>(p.col_end - p.col_begin, 1), 0}};
    pieces.push_back(std::move(p));
    return true;
  }

  bool emit(const Expr& leaf, const State& s) {
    AffinePiece p;
    const Coord strides = leaf.shape().strides();
    std::vector<Term> terms;
    for (size_t a = 0; a < s.coords.size(); ++a) {
      p.offset += s.coords[a].base * strides[a];
      for (Term t : s.coords[a].terms) {
        t.weight *= strides[a];
        terms.push_back(t);
      }
    }
    if (!place(p, s) || !digits(s, terms, 0, split_, p.rows) || !digits(s, terms, split_, domain_.rank(), p.cols))
      return false;
    p.leaf = leaf;
    pieces.push_back(std::move(p));
    return true;
  }

  // Row and column range of a box: only the leading axis of either group may be restricted.
  bool place(AffinePiece& p, const State& s) const {
    return range(s, 0, split_, p.row_begin, p.row_end) && range(s, split_, domain_.rank(), p.col_begin, p.col_end);
  }

  bool range(const State& s, int first, int last, int64_t& begin, int64_t& end) const {
    begin = 0;
    end = 1;
    bool leading = true;
    for (int a = first; a < last; ++a) {
      if (s.extent[a] != domain_[a] && !leading) return false;
      begin = leading ? s.begin[a] : begin * domain_[a];
      end = leading ? s.begin[a] + s.extent[a] : end * domain_[a];
      leading = leading && domain_[a] == 1;
    }
    return true;
  }

  static bool digits(const State& s, const std::vector<Term>& terms, int first, int last, std::vector<Digit>& out) {
    for (int a = first; a < last; ++a) {
      std::vector<Term> mine;
      for (const Term& t : terms)
        if (t.axis == a) mine.push_back(t);
      std::sort(mine.begin(), mine.end(), [](const Term& x, const Term& y) { return x.divisor > y.divisor; });
      int64_t left = s.extent[a];
      for (const Term& t : mine) {
        if (left % (t.divisor * t.extent)) return false;
        append(out, {left / (t.divisor * t.extent), 0});
        append(out, {t.extent, t.weight});
        left = t.divisor;
      }
      append(out, {left, 0});
    }
    if (out.empty()) out.push_back({1, 0});
    return true;
  }

  // Adds a digit below the last one, joined to it where one step serves both.
  static void append(std::vector<Digit>& out, Digit d) {
    if (d.extent == 1) return;
    if (!out.empty() && out.back().step == d.step * d.extent)
      out.back() = {out.back().extent * d.extent, d.step};
    else
      out.push_back(d);
  }

  const Shape& domain_;
  int split_;
};

}  // namespace

std::optional<std::vector<AffinePiece>> affine_pieces(const Expr& view, const Shape& domain, int split) {
  Builder b(domain, split);
  if (domain.numel() == 0 || !b.build(view)) return std::nullopt;
  return std::move(b.pieces);
}

bool is_view_chain(const Expr& e) {
  if (e->family() == Family::Leaf) return true;
  return e->family() == Family::View && std::all_of(e->in.begin(), e->in.end(), is_view_chain);
}

}  // namespace tenon
