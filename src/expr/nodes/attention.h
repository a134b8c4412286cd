// Scaled dot-product attention: softmax(scale * q k^T + causal mask) v, head by head.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// q [B, H, Sq, D]; k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv] with H a multiple of Hkv (grouped queries: query head h reads
/// key head h / (H / Hkv)). nums[0] = scale; ints[0] = 1 if causal: query i sees keys j <= i + Sk - Sq.
/// Accumulates in f32 and yields f32 [B, H, Sq, Dv].
struct Attention : Anchor {
  static constexpr auto name = "attention";
  static constexpr int kArity = 3;
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape, DType& dtype) {
    const Shape &q = in[0].shape(), &k = in[1].shape(), &v = in[2].shape();
    const bool good = q.rank() == 4 && k.rank() == 4 && v.rank() == 4 && q[0] == k[0] && k[0] == v[0] && k[1] == v[1] &&
                      k[2] == v[2] && q[3] == k[3] && k[1] > 0 && q[1] % k[1] == 0 && k[2] > 0;
    TENON_CHECK(Usage, good, "attention") << "q " << q.str() << ", k " << k.str() << ", v " << v.str()
                                          << " do not fit: expected q [B,H,Sq,D], k [B,Hkv,Sk,D], v [B,Hkv,Sk,Dv]";
    TENON_CHECK(Usage, attrs.nums.size() == 1 && attrs.ints.size() == 1, "attention") << "needs a scale and a causal flag";
    TENON_CHECK(Usage, !attrs.ints[0] || k[2] >= q[2], "attention") << "causal with fewer keys than queries";
    shape = {q[0], q[1], q[2], v[3]};
    dtype = DType::F32;
  }
  static void reference(const Node& n, std::span<const double* const> in, double* out) {
    const Shape &q = n.in[0].shape(), &k = n.in[1].shape(), &v = n.in[2].shape();
    const int64_t group = q[1] / k[1], keys = k[2], depth = q[3], width = v[3];
    std::vector<double> p(static_cast<size_t>(keys));
    for (int64_t r = 0; r < q[0] * q[1] * q[2]; ++r) {
      const int64_t i = r % q[2], h = r / q[2] % q[1], b = r / q[2] / q[1];
      const int64_t seen = n.attrs.ints[0] ? i + keys - q[2] + 1 : keys;
      const int64_t head = (b * k[1] + h / group) * keys;
      double top = -INFINITY, total = 0;
      for (int64_t j = 0; j < seen; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < depth; ++d) dot += in[0][r * depth + d] * in[1][(head + j) * depth + d];
        p[static_cast<size_t>(j)] = dot * n.attrs.nums[0];
        top = std::max(top, p[static_cast<size_t>(j)]);
      }
      for (int64_t j = 0; j < seen; ++j) total += p[static_cast<size_t>(j)] = std::exp(p[static_cast<size_t>(j)] - top);
      for (int64_t d = 0; d < width; ++d) {
        double sum = 0;
        for (int64_t j = 0; j < seen; ++j) sum += p[static_cast<size_t>(j)] * in[2][(head + j) * width + d];
        out[r * width + d] = sum / total;
      }
    }
  }
};

}  // namespace tenon::nodes

NODE(Attention)

namespace tenon {

/// softmax(scale * q k^T) v per head; q [B,H,Sq,D], k [B,Hkv,Sk,D], v [B,Hkv,Sk,Dv].
inline Expr attention(const Expr& q, const Expr& k, const Expr& v, double scale, bool causal = false) {
  Attrs a;
  a.ints = {causal ? 1 : 0};
  a.nums = {scale};
  return q.graph().make(node_type<nodes::Attention>(), std::array{q, k, v}, a);
}

}  // namespace tenon
