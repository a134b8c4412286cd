// What the softmax of attention divides by: a second result, from which a gradient computes the weights again.
#pragma once
#include "tenon/expr/nodes/attention.h"

namespace tenon::nodes {

/// Operands and attributes of Attention. f32 [B, H, Sq, 1]: log of the sum of e^(scale q k^T) over the keys that a
/// query sees; -inf where it sees none.
struct AttentionLse : Anchor {
  static constexpr auto name = "attention_lse";
  static constexpr std::string_view companion_of = "attention";
  static constexpr int kArity = -1, kFactors = 3;
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape, DType& dtype) {
    Attention::infer(in, attrs, shape, dtype);
    shape[3] = 1;
  }
  static void reference(const Node& n, std::span<const double* const> in, double* out) {
    const Shape &q = n.in[0].shape(), &k = n.in[1].shape();
    const int64_t keys = k[2], depth = q[3], group = q[1] / k[1];
    std::vector<double> s(static_cast<size_t>(keys));
    for (int64_t head = 0; head < q[0] * q[1]; ++head) {
      const int64_t kv = head / q[1] * k[1] + head % q[1] / group, there = Attention::keys_of(n, in, head / q[1]);
      for (int64_t i = 0; i < q[2]; ++i) {
        const int64_t seen = std::max<int64_t>(n.attrs.ints[0] ? i + there - q[2] + 1 : there, 0);
        if (seen > 0)
          multiply_transposed({in[0] + (head * q[2] + i) * depth, 1, depth, depth},
                              {in[1] + kv * keys * depth, seen, depth, depth}, s.data(), keys);
        out[head * q[2] + i] = log_of_sum({s.data(), static_cast<size_t>(seen)}, n.attrs.nums[0]);
      }
    }
  }
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
  static double log_of_sum(std::span<const double> s, double scale) {
    double top = -INFINITY, total = 0;
    for (const double x : s) top = std::max(top, x * scale);
    for (const double x : s) total += std::exp(x * scale - top);
    return s.empty() ? -INFINITY : top + std::log(total);
  }
};

}  // namespace tenon::nodes

NODE(AttentionLse)

namespace tenon {

/// The log-sum-exp beside the result `y` of attention.
inline Expr attention_lse(const Expr& y) {
  TENON_CHECK(Usage, y.is<nodes::Attention>(), "attention_lse") << "belongs to attention, got " << y->name();
  return y.graph().make(node_type<nodes::AttentionLse>(), y->in, y->attrs);
}

}  // namespace tenon
