#include "tests/planned/layers.h"

#include <algorithm>
#include <cmath>

#include "tenon/expr/precision.h"
#include "tenon/nn/norm.h"

namespace tenon::planned {

Layers::Layers(Graph& g, uint32_t seed, int64_t elements)
    : g_(g), random_(seed * 2654435761u + 1), elements_(elements) {
  act_ = pick({DType::F32, DType::F32, DType::BF16, DType::BF16, DType::F16});
}

// ---- leaves ---------------------------------------------------------------------------------------------------------

int64_t Layers::width() {
  if (chance(0.03)) return pick<int64_t>({200, 256, 300, 520, 1031, 1536});
  return pick<int64_t>(
      {1, 2, 3, 4, 7, 8, 8, 12, 16, 16, 20, 24, 31, 32, 32, 33, 40, 48, 64, 64, 65, 72, 96, 97, 128, 130});
}

Expr Layers::start() {
  const int64_t many = std::max<int64_t>(elements_ / 6000, 1);  // larger programs have more rows
  const int64_t batch = pick<int64_t>({1, 1, 2, 3});
  switch (below(5)) {
    case 4: {
      if (chance(0.2)) return fresh({width()});
      const Expr table =
          param(g_, name("table"), any_type(), {pick<int64_t>({1, 9, 40}), std::min<int64_t>(width(), 80)});
      const Expr rows = rows_by_index(table);  // embeddings and positions
      return rows.shape().rank() == 2 ? rows + param(g_, name("w"), act_, rows.shape()) : rows;
    }
    case 0:
      return fresh({batch * pick<int64_t>({1, 3, 16, 17, 33, 70}) * many, width()});
    case 1: {
      const int64_t h = pick<int64_t>({1, 2, 3, 4, 5, 7, 8, 9, 16}), w = pick<int64_t>({1, 2, 3, 4, 5, 8, 11, 16});
      const int64_t most = elements_ / (batch * h * w * many);
      return fresh({batch, h * many, w, std::clamp<int64_t>(width(), 1, std::max<int64_t>(most, 1))});
    }
    default:
      return fresh({batch, pick<int64_t>({1, 2, 5, 8, 13, 16, 17, 24, 33}) * many, std::min<int64_t>(width(), 80)});
  }
}

Expr Layers::fresh(const Shape& shape) {
  const Rate rate = chance(0.85) ? Rate::Step : chance(0.5) ? Rate::Prompt : Rate::Schedule;
  const DType t = chance(0.06) ? DType::E4M3 : any_type();
  return input(g_, name(chance(0.004) ? "odd" : "x"), t, shape, rate);
}

Expr Layers::weight(const Shape& shape) {
  for (const Expr& w : weights_)
    if (w.shape() == shape && chance(0.2)) return w;  // two layers share it
  const DType t = chance(0.05) ? DType::E4M3 : chance(0.7) ? act_ : any_type();
  const Expr w = param(g_, name("w"), t, shape);
  weights_.push_back(w);
  return shape.rank() != 2 || chance(0.85) ? w : weight_seen(shape, t, 3);
}

// A matrix of this shape behind at most this many views.
Expr Layers::weight_seen(const Shape& shape, DType t, int views) {
  if (views == 0 || (views < 3 && chance(0.5))) return param(g_, name("w"), t, shape);
  const int64_t rows = shape[0], columns = shape[1];
  const auto seen = [&](int64_t n, int64_t k) { return weight_seen({n, k}, t, views - 1); };
  switch (below(7)) {
    case 0:
      return transpose(seen(columns, rows));
    case 1:
      return slice(seen(rows + 3, columns), 0, 2, rows + 2);
    case 2:
      return rows == 1 ? seen(1, columns) : concat({seen(1, columns), seen(rows - 1, columns)}, 0);
    case 3:
      return columns % 2 || chance(0.5) ? flip(seen(rows, columns), below(2)) : pair_swap(seen(rows, columns));
    case 4:
      return slice(seen(rows, columns + 5), 1, 1, columns + 1);
    case 5:
      return columns == 1 ? seen(rows, 1) : concat({seen(rows, columns - 1), seen(rows, 1)}, 1);
    default:
      return cast(seen(rows, columns) * 0.5, t);
  }
}

// ---- maths ----------------------------------------------------------------------------------------------------------

Expr Layers::stored(const Expr& x) { return !x || chance(0.35) ? x : cast(x, act_); }

Expr Layers::narrow(const Expr& x) { return cast(x, pick({DType::BF16, DType::F16, DType::E4M3, DType::F32})); }

Expr Layers::activation(const Expr& x) {
  switch (below(6)) {
    case 0:
      return silu(x);
    case 1:
      return gelu(x);
    case 2:
      return gelu_tanh(x);
    case 3:
      return relu(x);
    case 4:
      return quick_gelu(x);
    default:
      return tanh(x);
  }
}

Expr Layers::unary(const Expr& x) {
  switch (below(20)) {
    case 19:
      return x * step_of(fresh(x.shape()));
    case 18:
      return pow(abs(x) + 0.5, chance(0.5) ? constant(g_, 1.5) : tanh(fresh(x.shape())));
    case 17:
      return chance(0.5) ? leaky_relu(x, 0.1) : fma(x, constant(g_, 0.5), fresh(x.shape()));
    case 16:
      return chance(0.3) ? barrier(x, stage_++) : chance(0.5) ? stop_gradient(x) * 0.5 : materialize(x) + x;
    case 13:
      return materialize(x);
    case 12:  // a mask in memory, so that rounding cannot affect it
      return where(less(fresh(x.shape()), constant(g_, 0.25)), x, x * 0.5);
    case 0:
      return sigmoid(x) - 0.5;
    case 1:
      return -abs(x);
    case 2:
      return sqrt(abs(x) + 0.1);
    case 3:
      return rsqrt(x * x + 1.0);
    case 4:
      return exp(clamp(x, -4, 1));
    case 5:
      return log(abs(x) + 1.0);
    case 6:
      return sin(x) + cos(x * 0.5);
    case 7:
      return erf(x);
    case 8:
      return round(x, pick({DType::BF16, DType::F16}));
    case 9:
      return max(min(x, constant(g_, 1.5)), constant(g_, -0.75)) * 2.0;
    default:
      return activation(x);
  }
}

// Functions with steps, of a value in memory, so that rounding cannot affect them.
Expr Layers::step_of(const Expr& x) {
  switch (below(5)) {
    case 0:
      return floor(x);
    case 1:
      return ceil(x * 2.0);
    case 2:
      return sign(x);
    case 3:
      return fmod(x, constant(g_, 0.75));
    default:
      return equal(floor(x), constant(g_, 0));
  }
}

// One number per sample and channel, from a small layer, like a time embedding.
Expr Layers::per_sample(const Expr& x) {
  const Shape& s = x.shape();
  const Expr signal = linear(silu(fresh({s[0], 8})), weight({s[-1], 8})) + vector(s[-1]);
  Shape shape = s;
  for (int a = 1; a < s.rank() - 1; ++a) shape[a] = 1;
  return reshape(signal, shape);
}

Expr Layers::binary(const Expr& x, const Expr& like) {
  const Shape& s = x.shape();
  Expr y = like;
  switch (below(like ? 12 : 6)) {
    case 0:
      y = fresh(s);
      break;
    case 1:
      y = s.rank() ? vector(s[-1]) : constant(g_, 0.3);
      if (s.rank() >= 2 && chance(0.2)) y = param(g_, name("w"), act_, {s[-2], s[-1]});
      break;
    case 2: {
      Shape row = s;
      if (row.rank()) row[-1] = 1;
      y = fresh(row);
      break;
    }
    case 3:
      y = chance(0.5) ? constant(g_, 0.7) : scalar(g_, name("s"), DType::F32, Rate::Step);
      break;
    case 4:
      if (s.rank() >= 3) y = per_sample(x);
      break;
    default:
      break;
  }
  if (!y) y = fresh(s);
  switch (below(8)) {
    case 0:
      return x * sigmoid(y);
    case 1:
      return x / (abs(y) + 1.0);
    case 2:
      return chance(0.5) ? min(x, y) : max(x, y);
    case 3:
      return lerp(x, y, constant(g_, 0.25));
    case 4:
      return y - x;
    case 5:
      return x * 0.5 * tanh(y);
    default:
      return x + y;
  }
}

// ---- layers ---------------------------------------------------------------------------------------------------------

Expr Layers::linear_layer(const Expr& x, int64_t outputs) {
  Expr a = chance(0.25) ? activation(x) : chance(0.25) ? norm(x) : x;
  if (chance(0.1)) a = a * vector(x.shape()[-1]);
  if (chance(0.5)) a = cast(a, act_);
  const Shape& s = x.shape();
  const bool one_each = s.rank() == 3 && s[0] > 1 && chance(0.08);  // a separate matrix for every sample
  Expr y = linear(a, one_each ? weight({s[0], outputs, s[-1]}) : weight({outputs, s[-1]}));
  if (chance(0.6)) y = y + vector(outputs);
  if (chance(0.15)) y = y * vector(outputs);  // LayerScale
  return y;
}

Expr Layers::convolution(const Expr& x, int64_t outputs, bool same_size) {
  const Shape& s = x.shape();
  Expr a = chance(0.3) ? silu(x) : chance(0.3) ? norm(x) : x;
  if (chance(0.5)) a = cast(a, act_);
  if (!same_size && chance(0.15)) a = chance(0.8) ? upsample2x(a) : resize_nearest(a, s[1] + 1, s[2] * 2);
  if (!same_size && chance(0.1)) a = padded(a);
  int64_t kh = pick<int64_t>({1, 3, 3, 3, 5}), kw = chance(0.9) ? kh : 3, stride = 1;
  if (chance(0.1)) kh = 1 + below(7), kw = 1 + below(7);
  std::array<int64_t, 4> pads{(kh - 1) / 2, (kw - 1) / 2, kh / 2, kw / 2};
  if (!same_size && chance(0.3)) {
    stride = chance(0.8) ? 2 : pick<int64_t>({3, 4});
    if (chance(0.3)) pads[0] = pads[1] = 0;
  }
  if (!same_size && chance(0.1))
    for (int64_t& p : pads) p = below(static_cast<int>(std::max(kh, kw)));
  if (a.shape()[1] + pads[0] + pads[2] < kh || a.shape()[2] + pads[1] + pads[3] < kw) return {};
  Expr y = conv2d(a, weight({outputs, a.shape()[3], kh, kw}), stride, pads);
  if (chance(0.7)) y = y + vector(outputs);
  if (chance(0.25)) y = y + per_sample(y);
  return y;
}

Expr Layers::dense(const Expr& x) {
  if (x.shape().rank() < 1) return {};
  const int64_t most = std::max<int64_t>(elements_ * x.shape()[-1] / std::max<int64_t>(x.shape().numel(), 1), 1);
  const int64_t outputs = std::min(width(), most);
  const Expr y = x.shape().rank() == 4 && chance(0.8) ? convolution(x, outputs, false) : linear_layer(x, outputs);
  return y && chance(0.4) ? activation(y) : y;
}

Expr Layers::dense_like(const Expr& x) {
  const int64_t c = x.shape()[-1];
  return x.shape().rank() == 4 && chance(0.8) ? convolution(x, c, true) : linear_layer(x, c);
}

Expr Layers::gate(const Expr& x) {
  if (x.shape().rank() < 1) return {};
  const int64_t n = std::min<int64_t>(pick<int64_t>({1, 5, 8, 16, 24, 40, 64, 70, 100}),
                                      std::max<int64_t>(elements_ * x.shape()[-1] / x.shape().numel(), 1));
  const int parts = pick({2, 2, 2, 3, 4});
  const Expr from = chance(0.3) ? norm(x) : x;
  const Expr both = x.shape().rank() == 4 && chance(0.5) ? conv2d(from, weight({parts * n, x.shape()[-1], 1, 1}))
                                                         : linear(from, weight({parts * n, x.shape()[-1]}));
  const Expr biased = chance(0.5) ? both + vector(parts * n) : both;
  Expr y = slice(biased, -1, 0, n);
  for (int i = 1; i < parts; ++i) {
    const Expr part = slice(biased, -1, i * n, (i + 1) * n);
    y = i % 2 ? y * activation(part) : y + part;
  }
  return chance(0.2) ? y + slice(biased, -1, 0, n) : y;
}

Expr Layers::norm(const Expr& x) {
  const Shape& s = x.shape();
  if (s.rank() < 1) return tanh(x);
  const int64_t c = s[-1];
  switch (below(7)) {
    case 6:
      return (x - mean(x)) * rsqrt(variance(x) + 1e-2);
    case 0:
      return nn::layer_norm(x, 1e-2, vector(c), vector(c));
    case 1: {
      const Expr e = exp(x - reduce_max(x));
      return e / sum(e);
    }
    case 2: {  // heads
      const int64_t heads = head_count(c);
      std::vector<int64_t> split(s.begin(), s.end());
      split.back() = heads;
      split.push_back(c / heads);
      const Expr h = reshape(x, Shape(split));
      return reshape(h * rsqrt(mean(h * h) + 1e-2), s);
    }
    case 3:
      if (s.rank() >= 3) return nn::group_norm(x, {head_count(c), 1e-2}, vector(c), vector(c));
      [[fallthrough]];
    default: {
      const Expr n = x * rsqrt((chance(0.5) ? mean(x * x) : sumsq(x) / static_cast<double>(c)) + 1e-2);
      return chance(0.5) ? n * vector(c) : n;
    }
  }
}

int64_t Layers::head_count(int64_t channels) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= std::min<int64_t>(channels, 8); ++d)
    if (channels % d == 0) divisors.push_back(d);
  return divisors[static_cast<size_t>(below(static_cast<int>(divisors.size())))];
}

Expr Layers::residual(const Expr& x) {
  if (x.shape().rank() < 1) return {};
  const bool sandwich = chance(0.4), pre = chance(0.5);
  Expr y = dense_like(pre ? norm(x) : x);
  if (!y) return {};
  if (chance(0.4)) y = dense_like(stored(activation(y)));
  if (!y) return {};
  if (sandwich) y = norm(chance(0.5) ? stored(y) : y);
  if (chance(0.2)) y = y * tanh(vector(x.shape()[-1]));
  const Expr sum = stored(x + y);
  return chance(0.35) ? stored(norm(sum)) : sum;
}

Expr Layers::several_anchors(const Expr& x, const Expr& other) {
  const Expr y = dense(x);
  if (!y || y.shape().rank() < 1) return {};
  Shape rows = y.shape();
  rows[-1] = other.shape().rank() ? other.shape()[-1] : 1;
  const Expr from = other.shape().rank() && other.shape() == rows ? other : fresh(rows);
  const Expr z = linear_layer(from, y.shape()[-1]);
  return stored(chance(0.5) ? y + z : chance(0.5) ? y * sigmoid(z) : norm(y) - z);
}

Expr Layers::beside(const Expr& x) {
  const Expr y = dense(x);
  if (!y) return {};
  const Expr h = chance(0.5) ? fresh(y.shape()) : cast(fresh(y.shape()), act_);
  return stored(chance(0.5) ? y + norm(h) : y * reduced(h));
}

Expr Layers::product_of_activations(const Expr& x, const Expr& other) {
  const Shape& s = x.shape();
  if (s.rank() < 2) return {};
  Shape shape = s;
  shape[-2] = pick<int64_t>({1, 4, 8, 20, 33});
  if (s.rank() == 2 && chance(0.5)) shape = {shape[0], s[1]};
  Expr y = fresh(shape);
  if (other.shape().rank() == s.rank() && other.shape()[-1] == s[-1] && chance(0.5)) {
    Shape fits = other.shape();
    fits[-2] = s[-2];
    if (fits == s) y = other;
  }
  if (y.shape().rank() < 2) return {};
  const Expr scores = linear(chance(0.3) ? norm(x) : x, y) * (1 / std::sqrt(static_cast<double>(s[-1])));
  return stored(chance(0.3) ? norm(scores) : scores);
}

Expr Layers::reduced(const Expr& x) {
  if (x.shape().rank() < 1) return {};
  switch (below(8)) {
    case 7:
      return x * rsqrt(variance(x) + 0.1);
    case 6: {  // of all axes between the first and the last
      if (x.shape().rank() < 3) return variance(x);
      const auto inner = ReduceOver::Inner;
      const Expr y = chance(0.3) ? sumsq(x, inner) : chance(0.3) ? variance(x, inner) : mean(x, inner);
      return chance(0.5) ? x * rsqrt(y * y + 0.1) : x - (chance(0.5) ? absmax(x, inner) : reduce_max(x, inner));
    }
    case 0:
      return mean(x);
    case 1:
      return reduce_max(x);
    case 2:
      return absmax(x) + 0.1;
    case 3:
      return broadcast(mean(activation(x)), x.shape());
    case 4:
      return sumsq(x) / static_cast<double>(x.shape()[-1]);
    default:
      if (x.shape().rank() < 3) return sum(x) / std::sqrt(static_cast<double>(x.shape()[-1]));
      return x - sum(x, ReduceOver::Inner) / static_cast<double>(x.shape().numel() / x.shape()[0] / x.shape()[-1]);
  }
}

Expr Layers::quantised_dense(const Expr& x) {
  if (x.shape().rank() < 1) return {};
  const int64_t k = x.shape()[-1];
  const int64_t n = std::min<int64_t>(width(), std::max<int64_t>(elements_ * k / x.shape().numel(), 1));
  const auto stored_as = [&](DType t) { return param(g_, name("w"), t, {n, k}); };
  switch (below(5)) {
    case 0: {
      const QuantizedRows rows = quantize_rows(x), w = quantize_rows(param(g_, name("w"), any_type(), {n, k}));
      return stored(linear(rows.q, w.q) * rows.scale * reshape(w.scale, {n}));
    }
    case 1: {
      const QuantizedRows rows = quantize_rows(chance(0.5) ? x : norm(x));
      return stored(linear(rows.q, stored_as(DType::E4M3)) * rows.scale * vector(n) + vector(n));
    }
    case 2:
      return stored(linear(cast(x, pick({DType::BF16, DType::F16, DType::F32})), stored_as(DType::I8)) * (1.0 / 127) *
                    vector(n));
    case 3: {
      const QuantizedRows w = quantize_rows(param(g_, name("w"), any_type(), {n, k}), DType::I8);
      return stored(linear(cast(x, pick({DType::BF16, DType::F16})), w.q) * reshape(w.scale, {n}) + vector(n));
    }
    default: {
      const Expr scale = max(absmax(x), constant(g_, 1e-12)) / 448.0;
      return stored(linear(cast(x / scale, DType::E4M3), stored_as(DType::E4M3)) * scale + vector(n));
    }
  }
}

Expr Layers::branched(const Expr& x) {
  if (x.shape().rank() < 1) return {};
  const int64_t k = x.shape()[-1], rank = pick<int64_t>({1, 4, 8, 8, 16, 16, 20, 32});
  const int64_t n = std::min<int64_t>(width(), std::max<int64_t>(elements_ * k / x.shape().numel(), 1));
  const Expr a = cast(chance(0.4) ? norm(x) : x, act_);
  Expr layer = linear(a, weight({n, k}));
  if (chance(0.25)) {
    const QuantizedRows rows = quantize_rows(a);
    layer = linear(rows.q, param(g_, name("w"), DType::E4M3, {n, k})) * rows.scale;
    if (chance(0.5)) layer = layer * vector(n);
  }
  if (chance(0.2)) layer = cast(layer, act_);
  const Expr down = cast(linear(a, param(g_, name("w"), act_, {rank, k})), act_);
  Expr side = linear(down, param(g_, name("w"), act_, {n, rank}));
  if (chance(0.5)) side = side * 0.5;
  Expr y = chance(0.5) ? layer + side : side + layer;
  if (chance(0.5)) y = y + vector(n);
  if (chance(0.3) && n % 2 == 0) y = slice(y, -1, 0, n / 2) * activation(slice(y, -1, n / 2, n));
  return stored(chance(0.3) ? activation(y) : y);
}

}  // namespace tenon::planned
