// The building blocks of random programs. Each keeps numbers near 1 and returns an empty Expr if it does not fit.
#pragma once
#include <map>
#include <random>

#include "tenon/expr/ops.h"

namespace tenon::planned {

class Layers {
 public:
  Layers(Graph& g, uint32_t seed, int64_t elements);

  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  bool chance(double p) { return static_cast<double>(random_()) < p * 4294967296.0; }

  /// The program's first value: tokens, rows or an image.
  Expr start();
  /// As the program stores its values: rounded to its type, or left in f32.
  Expr stored(const Expr& x);
  /// Rounded to any narrow type.
  Expr narrow(const Expr& x);

  Expr unary(const Expr& x);
  /// With `like`, which has x's shape (or is empty), or with something new.
  Expr binary(const Expr& x, const Expr& like);
  /// A linear layer or a convolution, with operations before and after it.
  Expr dense(const Expr& x);
  /// Of the same shape as x.
  Expr dense_like(const Expr& x);
  /// GEGLU and related gates: equal parts of the columns.
  Expr gate(const Expr& x);
  Expr norm(const Expr& x);
  /// Pre-norm, post-norm and sandwich-norm.
  Expr residual(const Expr& x);
  /// Attention over x [B,S,C], and over `other` if that fits.
  Expr attend(const Expr& x, const Expr& other);
  /// Attention of x's tokens over a cache that they are written into, at a position known when a plan runs.
  Expr attend_cached(const Expr& x);
  /// Rows of x written into a state, and what is then read of it.
  Expr remembered(const Expr& x);
  /// Rows of a table for tokens drawn from scores.
  Expr drawn();
  /// The last update of every state, by its name.
  const std::map<std::string, Expr>& states() const { return states_; }
  /// A stage for barriers, above all before.
  int next_stage() const { return stage_; }
  /// The results of two anchors in one piece of maths.
  Expr several_anchors(const Expr& x, const Expr& other);
  /// An anchor next to a reduction of another tensor.
  Expr beside(const Expr& x);
  Expr product_of_activations(const Expr& x, const Expr& other);
  Expr reduced(const Expr& x);
  /// Rows of one or both operands quantised to e4m3 or i8, multiplied, and scaled back.
  Expr quantised_dense(const Expr& x);
  /// A layer with a low-rank branch beside it.
  Expr branched(const Expr& x);
  Expr joined(const Expr& x, const Expr& other);
  Expr view(const Expr& x);
  /// Up to five views, one upon another.
  Expr views(const Expr& x);
  /// An input of integers below n; `places` are different ones.
  Expr index_below(int64_t n, const Shape& shape) { return index("index", n, shape); }
  Expr places_below(int64_t n, const Shape& shape) { return index("place", n, shape); }

 private:
  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[below(static_cast<int>(from.size()))];
  }
  std::string name(std::string kind) { return kind += std::to_string(next_++); }
  DType any_type() { return pick({DType::F32, DType::F32, act_, DType::BF16, DType::F16}); }
  Expr fresh(const Shape& shape);
  Expr weight(const Shape& shape);
  Expr weight_seen(const Shape& shape, DType t, int views);
  Expr index(std::string kind, int64_t n, const Shape& shape);
  Expr step_of(const Expr& x);
  Expr vector(int64_t n) { return param(g_, name("b"), any_type(), {n}); }
  int64_t width();
  int64_t head_count(int64_t channels);
  Expr activation(const Expr& x);
  Expr linear_layer(const Expr& x, int64_t outputs);
  Expr convolution(const Expr& x, int64_t outputs, bool same_size);
  Expr per_sample(const Expr& x);
  Expr heads_of(const Expr& x, int64_t heads, int64_t depth);
  Expr rotated(const Expr& x);
  Expr counted_keys(int64_t batch, int64_t queries, int64_t keys);
  Expr counted(int64_t n, const Shape& as) { return reshape(cast(iota(g_, n), DType::F32), as); }
  Expr updated(const Expr& state, const Expr& index, const Expr& rows);
  Expr slice_of(const Expr& x);
  Expr reshaped(const Expr& x);
  Expr permuted(const Expr& x);
  Expr padded(const Expr& x);
  Expr rows_by_index(const Expr& x);

  Graph& g_;
  std::mt19937 random_;
  int64_t elements_;
  DType act_ = DType::F32;  ///< of stored values
  int next_ = 0, stage_ = 0;
  std::map<std::string, Expr> states_;
  std::vector<Expr> weights_;
};

}  // namespace tenon::planned
