// The gradients of attention as anchors, for devices that hold a tile of scores at a time: the scores are computed
// again, and p = e^(scale q k^T - lse) and ds = p (g v^T - delta) never lie in memory.
#pragma once
#include <functional>

#include "tenon/expr/nodes/attention.h"

namespace tenon::nodes {

/// Operands: q, k, v as in Attention; g [B, H, Sq, Dv], the gradient of its result; lse [B, H, Sq, 1], its
/// AttentionLse; delta [B, H, Sq, 1], the sum of g * result over a row; and perhaps `keys`. Attributes of Attention.
struct AttentionGradient : Anchor {
  static constexpr int kArity = -1, kFactors = 4;
  static constexpr size_t kOperands = 6;  ///< without `keys`
  static void check(std::span<const Expr> in, const Attrs& attrs);
  /// The gradients of the anchor as the products that it stands for.
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);

 protected:
  /// Calls use(key_head, row, rows, p, ds) for blocks of queries, rows [row, row + rows) of q: [rows][Sk] each. Heads
  /// are counted through the batch.
  using Use = std::function<void(int64_t, int64_t, int64_t, const double*, const double*)>;
  static void weights(const Node& n, std::span<const double* const> in, const Use& use);
};

/// f32 [B, H, Sq, D]: of q, scale ds k.
struct AttentionQueryGradient : AttentionGradient {
  static constexpr auto name = "attention_query_gradient";
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape, DType& dtype) {
    check(in, attrs);
    shape = in[0].shape();
    dtype = DType::F32;
  }
  static void reference(const Node& n, std::span<const double* const> in, double* out);
  static Expr apart(const Expr& node);
};

/// f32 [B, Hkv, Sk, D + Dv]: of k, scale ds^T q, and beside it of v, p^T g; summed over the heads that share keys.
struct AttentionKeyGradient : AttentionGradient {
  static constexpr auto name = "attention_key_gradient";
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape, DType& dtype) {
    check(in, attrs);
    shape = in[1].shape();
    shape[3] += in[2].shape()[3];
    dtype = DType::F32;
  }
  static void reference(const Node& n, std::span<const double* const> in, double* out);
  static Expr apart(const Expr& node);
};

}  // namespace tenon::nodes

NODE(AttentionQueryGradient)
NODE(AttentionKeyGradient)

namespace tenon {

/// Attention's gradients, of queries or of keys and values.
inline bool is_attention_gradient(const Expr& e) {
  return e.is<nodes::AttentionQueryGradient>() || e.is<nodes::AttentionKeyGradient>();
}
/// Attention or one of its gradients: heads of q, k and v are multiplied.
inline bool multiplies_heads(const Expr& e) { return e.is<nodes::Attention>() || is_attention_gradient(e); }

}  // namespace tenon
