#include "tenon/explain/rounding_noise.h"

#include <cmath>
#include <random>

#include "tenon/expr/ops.h"

namespace tenon {
namespace {

constexpr double kF32 = 0x1p-24;
constexpr int kSamples = 3;

// A launch's body with its values multiplied by 1 + noise.
class NoisyBody {
 public:
  explicit NoisyBody(const Launch& launch) {
    Memo memo;
    const Replace add_noise = [this](const Expr& e, std::span<const Expr> in) { return noisy_node(e, in); };
    for (const Output& o : launch.outputs) {
      const Expr value = rebuild(graph_, o.value, add_noise, memo);
      values_.push_back(steps(written_by(o.value)) ? without_steps(o.value, value, memo) : value);
    }
  }

  const std::vector<Expr>& values() const { return values_; }

  std::vector<double> leaf(const Expr& e, int sample, const Oracle::Leaves& leaves) const {
    const auto it = noise_.find(e->attrs.text);
    if (it == noise_.end()) return leaves(e);
    std::mt19937 random(static_cast<uint32_t>(it->second.number * kSamples + sample));
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<double> values(static_cast<size_t>(e.shape().numel()));
    const size_t some = values.empty() ? 0 : random() % values.size();
    for (size_t i = 0; i < values.size(); ++i) {
      const bool here = !it->second.sparse || i == some || random() % 16 == 0;
      const double x = uniform(random);
      values[i] = here ? 1 + it->second.size * (it->second.sparse ? std::copysign(1, x) : x) : 1;
    }
    return values;
  }

 private:
  struct Noise {
    int number;
    double size;
    bool sparse;  ///< few elements, but by whole steps: a value near a tie is rounded the other way
  };

  Expr noisy(const Expr& x, double size, bool sparse = false) {
    std::string name = "noise.";
    name += std::to_string(noise_.size());
    noise_.emplace(name, Noise{static_cast<int>(noise_.size()), size, sparse});
    return x * input(graph_, name, DType::F64, x.shape());
  }

  // The error of a logarithm of sums, which are rounded relative to values of 1 and more.
  Expr around_zero(const Shape& shape, double size) {
    const Expr one = broadcast(constant(graph_, 1), shape);
    return noisy(one, size) - one;
  }

  // True for a rounding to fewer bits than f32's.
  static bool steps(const Expr& e) { return e->type->round && unit_roundoff(*e->attrs.dtype) > kF32; }
  // Steps of a stored value are allowed for anyway; those who read it in the launch see them, too.
  Expr without_steps(const Expr& e, const Expr& noisy, const Memo& memo) {
    const Expr& stored = written_by(e);
    const Expr exact = as_it_is(stored, std::array{memo.at(stored->in[0].get())});
    if (!is_update(e)) return exact;
    std::vector<Expr> operands(noisy->in.begin(), noisy->in.end());
    operands.back() = cast(exact, e.dtype());
    return as_it_is(e, operands);
  }
  Expr as_it_is(const Expr& e, std::span<const Expr> in) { return graph_.make(*e->type, in, e->attrs); }

  Expr noisy_node(const Expr& e, std::span<const Expr> in) {
    switch (e->family()) {
      case Family::Pointwise: {
        if (e.is<nodes::Cast>() && e.dtype() == DType::I8) return quantized(e);
        if (is_decision(e)) return without_noise(e);
        const Expr y = as_it_is(e, in);
        if (is_difference(e)) return noisy(y, 8 * kF32) + (noisy(clamp(in[0], -1, 1), 8 * kF32) - clamp(in[0], -1, 1));
        if (!e->type->round) return noisy(y, 8 * kF32);
        return steps(e) ? noisy(y, 2 * unit_roundoff(*e->attrs.dtype), true) : y;
      }
      case Family::Reduce: {
        const Expr x = noisy(in[0], 4 * kF32);
        return noisy(graph_.make(*e->type, std::array{x}, e->attrs), 4 * kF32);
      }
      case Family::Anchor: {
        std::vector<Expr> operands;
        for (size_t k = 0; k < in.size(); ++k)
          operands.push_back(is_float(in[k].dtype()) ? noisy(in[k], operand_error(e, k)) : in[k]);
        Attrs attrs = e->attrs;
        attrs.dtype.reset();  // with noise, operands are wider than the type they are multiplied in
        const Expr y = noisy(graph_.make(*e->type, operands, std::move(attrs)), 4 * kF32);
        return e.is<nodes::AttentionLse>() ? y + around_zero(y.shape(), 4 * kF32) : y;
      }
      case Family::Sink: {  // a state holds numbers of its own type
        std::vector<Expr> operands(in.begin(), in.end());
        operands.back() = cast(operands.back(), e.dtype());
        return as_it_is(e, operands);
      }
      default: {
        if (!e.is<nodes::Concat>()) return {};
        std::vector<Expr> operands;  // noise has widened some of them
        for (const Expr& x : in) operands.push_back(cast(x, DType::F64));
        return graph_.make(*e->type, operands, e->attrs);
      }
    }
  }

  // Nodes without a derivative are computed without noise: programs make decisions on values that are exact on both
  // sides.
  static bool is_decision(const Expr& e) {
    return e.is<nodes::Equal>() || e.is<nodes::Less>() || e.is<nodes::Sign>() || e.is<nodes::Floor>() ||
           e.is<nodes::Ceil>() || e.is<nodes::Fmod>() || !is_float(e.dtype());
  }
  Expr without_noise(const Expr& e) { return rebuild(graph_, e, exact_); }

  // Numbers of i8 are floor(x / scale + 1/2), a decision: one whose quotient is within f32's error of a tie may be a
  // step off.
  Expr quantized(const Expr& e) {
    const Expr exact = cast(without_noise(e), DType::F64);
    if (!e->in[0].is<nodes::Floor>()) return exact;
    const Expr x = without_noise(e->in[0]->in[0]);
    const Expr apart = floor(x * (1 + 4 * kF32)) - floor(x * (1 - 4 * kF32));
    return exact + (noisy(apart, 1) - apart);
  }

  // Bodies whose small results are a difference of values near 1: their error there is small only relative to x.
  static bool is_difference(const Expr& e) {
    return e.is<nodes::Gelu>() || e.is<nodes::GeluTanh>() || e.is<nodes::QuickGelu>() || e.is<nodes::Erf>();
  }

  // The error of an operand that a kernel causes on the way into the products.
  static double operand_error(const Expr& anchor, size_t k) {
    const DType first = anchor->in[0].dtype(), t = anchor->in[k].dtype();
    if (anchor.is<nodes::Attention>() && k == 2 && unit_roundoff(t) > kF32) return 0x1p-8;  // rounded weights
    if (is_attention_gradient(anchor) && k < 4 && unit_roundoff(t) > kF32) return 0x1p-8;   // and their gradients
    if (anchor.is<nodes::Conv2d>() && k == 1 && first == DType::BF16 &&
        anchor.shape().numel() >= 1024 * anchor.shape()[3])
      return 0x1p-10;                                             // Winograd's filters in f16
    if (t == DType::E4M3 && first == DType::E4M3) return 0x1p-9;  // tensor cores keep 13 bits
    return 8 * kF32;
  }

  Graph graph_;
  std::vector<Expr> values_;
  std::map<std::string, Noise> noise_;
  Memo exact_;
};

}  // namespace

std::vector<std::vector<double>> rounding_noise(const Launch& launch, const Oracle::Leaves& leaves) {
  const NoisyBody body(launch);
  Oracle exact(leaves);
  std::vector<std::vector<double>> out(launch.outputs.size());
  for (int sample = 0; sample < kSamples; ++sample) {
    Oracle oracle([&](const Expr& e) { return body.leaf(e, sample, leaves); });
    for (size_t o = 0; o < out.size(); ++o) {
      const std::vector<double> x = oracle.eval(body.values()[o]), y = exact.eval(launch.outputs[o].value);
      out[o].resize(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        const double moved = std::abs(x[i] - y[i]);
        if (std::isfinite(moved)) out[o][i] = std::max(out[o][i], moved);
      }
    }
  }
  return out;
}

}  // namespace tenon
