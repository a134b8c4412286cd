// Scaled dot-product attention: softmax(scale * q k^T + causal mask) v, head by head.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/reference.h"

namespace tenon::nodes {

/// q [B, H, Sq, D]; k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv] with H a multiple of Hkv (grouped queries: query head h reads
/// key head h / (H / Hkv)). nums[0] = scale; ints[0] = 1 if causal: query i sees keys j <= i + n - Sq. n is Sk, or,
/// with an operand `keys` (i32, one number or [B]), the number it has for the batch entry, 0..Sk: nothing is read of
/// keys and values behind it. Accumulates in f32 and yields f32 [B, H, Sq, Dv], NaN where a query sees no key.
struct Attention : Anchor {
  static constexpr auto name = "attention";
  static constexpr int kArity = -1, kFactors = 3;
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape, DType& dtype) {
    TENON_CHECK(Usage, in.size() == 3 || in.size() == 4, "attention") << "needs q, k, v and perhaps keys";
    const Shape &q = in[0].shape(), &k = in[1].shape(), &v = in[2].shape();
    const bool good = q.rank() == 4 && k.rank() == 4 && v.rank() == 4 && q[0] == k[0] && k[0] == v[0] && k[1] == v[1] &&
                      k[2] == v[2] && q[3] == k[3] && k[1] > 0 && q[1] % k[1] == 0 && k[2] > 0;
    TENON_CHECK(Usage, good, "attention") << "q " << q.str() << ", k " << k.str() << ", v " << v.str()
                                          << " do not fit: expected q [B,H,Sq,D], k [B,Hkv,Sk,D], v [B,Hkv,Sk,Dv]";
    TENON_CHECK(Usage, attrs.nums.size() == 1 && attrs.ints.size() == 1, "attention")
        << "needs a scale and a causal flag";
    TENON_CHECK(Usage, !attrs.ints[0] || k[2] >= q[2], "attention") << "causal with fewer keys than queries";
    const bool counted =
        in.size() == 3 || (in[3].dtype() == DType::I32 && (in[3].shape().rank() == 0 || in[3].shape() == Shape{q[0]}));
    TENON_CHECK(Usage, counted, "attention") << "keys must be i32, one number or one for each batch entry, got "
                                             << name_of(in[3].dtype()) << in[3].shape().str();
    shape = {q[0], q[1], q[2], v[3]};
    dtype = DType::F32;
  }
  static void reference(const Node& n, std::span<const double* const> in, double* out) {
    const Shape &q = n.in[0].shape(), &k = n.in[1].shape(), &v = n.in[2].shape();
    const int64_t keys = k[2], depth = q[3], width = v[3], group = q[1] / k[1];
    const bool causal = n.attrs.ints[0] != 0;
    // A few rows of scores at a time. Under a causal mask one, so that no unseen value is multiplied, not even by 0.
    const int64_t block = causal ? 1 : 64;
    std::vector<double> p(static_cast<size_t>(block * keys)), vt(static_cast<size_t>(width * keys));
    for (int64_t head = 0; head < q[0] * q[1]; ++head) {
      const int64_t kv = head / q[1] * k[1] + head % q[1] / group, there = keys_of(n, in, head / q[1]);
      for (int64_t i = 0; i < keys * width; ++i)
        vt[static_cast<size_t>(i % width * keys + i / width)] = in[2][kv * keys * width + i];
      for (int64_t i = 0; i < q[2]; i += block) {
        const int64_t rows = std::min(block, q[2] - i), seen = causal ? i + there - q[2] + 1 : there;
        if (seen <= 0) {
          std::fill_n(out + (head * q[2] + i) * width, rows * width, NAN);
          continue;
        }
        multiply_transposed({in[0] + (head * q[2] + i) * depth, rows, depth, depth},
                            {in[1] + kv * keys * depth, seen, depth, depth}, p.data(), keys);
        for (int64_t r = 0; r < rows; ++r) softmax({p.data() + r * keys, static_cast<size_t>(seen)}, n.attrs.nums[0]);
        multiply_transposed({p.data(), rows, seen, keys}, {vt.data(), width, seen, keys},
                            out + (head * q[2] + i) * width, width);
      }
    }
  }
  /// The keys that batch entry `b` has: of a node with k as operand 1, and their number as operand `counted`, if it is
  /// there.
  static int64_t keys_of(const Node& n, std::span<const double* const> in, int64_t b, size_t counted = 3) {
    const int64_t all = n.in[1].shape()[2];
    if (n.in.size() == counted) return all;
    const double keys = in[counted][n.in[counted].shape().rank() ? b : 0];
    TENON_CHECK(Numeric, keys >= 0 && keys <= static_cast<double>(all), "attention")
        << keys << " keys, expected 0.." << all;
    return static_cast<int64_t>(keys);
  }
  /// Computes the scores again: p = e^(scale q k^T - log-sum-exp), which leaves the forward pass beside its result. The
  /// queries that share keys are rows of one matrix, which sums their gradients in a fixed order.
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
  /// In place: e^(scale s - top) / total.
  static void softmax(std::span<double> s, double scale) {
    double top = -INFINITY, total = 0;
    for (double& x : s) top = std::max(top, x *= scale);
    for (double& x : s) total += x = std::exp(x - top);
    for (double& x : s) x /= total;
  }
};

}  // namespace tenon::nodes

NODE(Attention)

namespace tenon {

/// softmax(scale * q k^T) v per head; q [B,H,Sq,D], k [B,Hkv,Sk,D], v [B,Hkv,Sk,Dv]. `keys`: how many of the Sk there
/// are, i32, known when it runs; causal counts from their end.
inline Expr attention(const Expr& q, const Expr& k, const Expr& v, double scale, bool causal = false,
                      const Expr& keys = {}) {
  Attrs a;
  a.ints = {causal ? 1 : 0};
  a.nums = {scale};
  std::vector<Expr> in{q, k, v};
  if (keys) in.push_back(keys);
  return q.graph().make(node_type<nodes::Attention>(), in, a);
}

}  // namespace tenon
