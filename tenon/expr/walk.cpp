#include "tenon/expr/walk.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/expr/node_type.h"

namespace tenon {
namespace {

// An index is an integer with a constant step from one position to the next.
class Integers final : public IndexAlgebra {
 public:
  Integers(const Node& view, Walk& walk, LookUp look_up)
      : view_(view), walk_(walk), run_(walk.run), read_number_(look_up) {}

  // Moves the walk to the operand it is read from and returns its number, or -1.
  int follow() {
    Indices c;
    for (size_t a = 0; a < c.size(); ++a) c[a] = index(walk_.at[a], walk_.step[a]);
    view_.type->map(view_, *this, c);
    walk_.run = run_;
    return zero_ ? -1 : operand_;
  }

  Index number(int64_t n) override { return index(n); }
  Index times(Index i, int64_t n) override { return index(value(i) * n, step(i) * n); }
  Index sum(Index i, Index j) override { return index(value(i) + value(j), step(i) + step(j)); }
  Index reversed(Index i, int64_t n) override { return index(n - 1 - value(i), -step(i)); }
  // If n divides the step, the quotient advances; otherwise the remainder does, until the quotient would change.
  Divided divided(Index i, int64_t n) override {
    const Index remainder = index(value(i) % n, step(i));
    if (step(i) % n == 0) return {index(value(i) / n, step(i) / n), index(value(remainder))};
    keep_in(remainder, n);
    return {index(value(i) / n), remainder};
  }
  Index nearest(Index i, int64_t from, int64_t to) override {
    if (step(i)) run_ = 1;
    return index(nearest_source(value(i), from, to));
  }
  Index inside(Index i, int64_t begin, int64_t extent) override {
    const Index local = plus(i, -begin);
    const int64_t v = value(local), s = step(local);
    zero_ = zero_ || v < 0 || v >= extent;
    if (v < 0)
      keep_below(local, 0);
    else if (v < extent)
      keep_in(local, extent);
    else if (s < 0)
      keep_below(index(extent - 1 - v, -s), 0);
    return local;
  }
  void part(Index i, std::span<const int64_t> extents, InPart body) override {
    int k = 0;
    while (static_cast<size_t>(k) + 1 < extents.size() && value(i) >= extents[static_cast<size_t>(k)])
      i = plus(i, -extents[static_cast<size_t>(k++)]);
    keep_in(i, extents[static_cast<size_t>(k)]);
    body(k, i);
  }
  Index look_up(int operand, const Indices& c, int64_t extent) override {
    if (zero_) return index(0);
    Coord at{};
    for (size_t a = 0; a < static_cast<size_t>(view_.in[static_cast<size_t>(operand)].shape().rank()); ++a) {
      at[a] = value(c[a]);
      if (step(c[a])) run_ = 1;
    }
    const int64_t n = read_number_(operand, at);
    TENON_CHECK(Numeric, n >= 0 && n < extent, std::string(view_.name()))
        << "index " << n << " is outside 0.." << extent - 1;
    return index(n);
  }
  void read(int operand, const Indices& c) override {
    operand_ = operand;
    for (size_t a = 0; a < c.size(); ++a) {
      walk_.at[a] = value(c[a]);
      walk_.step[a] = step(c[a]);
    }
  }

 private:
  // Ends the run before i reaches `end` from below.
  void keep_below(Index i, int64_t end) {
    if (step(i) > 0) run_ = std::clamp<int64_t>((end - value(i) + step(i) - 1) / step(i), 1, run_);
  }
  // Ends the run before i, which is in [0, extent), leaves that range.
  void keep_in(Index i, int64_t extent) {
    keep_below(i, extent);
    keep_below(index(-value(i), -step(i)), 1);
  }

  const Node& view_;
  Walk& walk_;  // read() stores the new position here
  int64_t run_;
  LookUp read_number_;
  bool zero_ = false;
  int operand_ = 0;
};

}  // namespace

int follow(const Node& view, Walk& walk, LookUp look_up) { return Integers(view, walk, look_up).follow(); }

}  // namespace tenon
