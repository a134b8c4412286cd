// The arithmetic that views are written in. A view's `map`, and nothing else, defines where the elements of its result
// are found: a few operations on coordinates, then a read of an operand. The algebra decides what an operation does:
// compute with numbers (walk.h, for the oracle and the CPU's slow path) or with affine terms (backend/affine.cpp),
// gather facts (kernels/view_facts.cpp, kernels/row_broadcast.cpp), or write kernel source (backend/cuda/codegen).
#pragma once
#include <array>
#include <deque>
#include <span>
#include <utility>

#include "tenon/core/function_ref.h"
#include "tenon/core/shape.h"

namespace tenon {

/// A coordinate. Only the algebra that made it knows its representation.
class Index {
  friend class IndexAlgebra;
  int64_t value_ = 0, step_ = 0;
};
using Indices = std::array<Index, kMaxRank>;

/// Indices are never negative, and operations must not yield negative ones, except as plus() says.
class IndexAlgebra {
 public:
  IndexAlgebra() = default;
  IndexAlgebra(const IndexAlgebra&) = delete;
  IndexAlgebra& operator=(const IndexAlgebra&) = delete;
  virtual ~IndexAlgebra() = default;

  virtual Index number(int64_t n) = 0;
  /// i + n; n may be negative as long as i + n is not. `number` may then be asked for a negative n.
  virtual Index plus(Index i, int64_t n) { return sum(i, number(n)); }
  virtual Index times(Index i, int64_t n) = 0;
  virtual Index sum(Index i, Index j) = 0;
  /// n - 1 - i: position i of n, counted from the end.
  virtual Index reversed(Index i, int64_t n) = 0;
  struct Divided {
    Index quotient, remainder;
  };
  /// i / n and i % n, where n is an extent: kernel source must not depend on it.
  virtual Divided divided(Index i, int64_t n) = 0;
  /// i / 2 and i % 2. The 2 is part of the view's definition, so kernel source may contain it.
  virtual Divided halved(Index i) { return divided(i, 2); }
  /// Position i of `to` mapped to one of `from` positions, by nearest_source().
  virtual Index nearest(Index i, int64_t from, int64_t to) = 0;
  /// i - begin. Where that is not in [0, extent), the element is zero and nothing is read.
  virtual Index inside(Index i, int64_t begin, int64_t extent) = 0;
  /// For i along a concatenation of parts with these extents, calls body(part, position within it) for the part that
  /// contains i, or, if the algebra cannot tell, for every part that might.
  using InPart = FunctionRef<void(int part, Index place)>;
  virtual void part(Index i, std::span<const int64_t> extents, InPart body) = 0;
  /// The integer at `c` of an index operand; it must be in [0, extent).
  virtual Index look_up(int operand, const Indices& c, int64_t extent) = 0;
  /// The element is the operand's at `c`. Every map ends with one read, or with one per part.
  virtual void read(int operand, const Indices& c) = 0;

  /// The row-major linear index of coordinates in `shape`, and its inverse.
  Index ravel(const Indices& c, const Shape& shape);
  Indices unravel(Index i, const Shape& shape);

 protected:
  static Index index(int64_t value, int64_t step = 0) {
    Index i;
    i.value_ = value;
    i.step_ = step;
    return i;
  }
  static int64_t value(Index i) { return i.value_; }
  static int64_t step(Index i) { return i.step_; }
};

/// An algebra whose coordinates are Values kept in its own table.
template <class Value>
class SymbolicAlgebra : public IndexAlgebra {
 protected:
  Index hold(Value v) {
    values_.push_back(std::move(v));
    return index(static_cast<int64_t>(values_.size()) - 1);
  }
  const Value& held(Index i) const { return values_[static_cast<size_t>(value(i))]; }

 private:
  std::deque<Value> values_;
};

/// floor(i * from / to), computed in f32 as PyTorch's interpolate(mode="nearest") does.
int64_t nearest_source(int64_t i, int64_t from, int64_t to);

}  // namespace tenon
