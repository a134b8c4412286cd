// Scaled dot-product attention per head, softmax(scale * q k^T + causal mask) v; its log-sum-exp is a second result,
// and its gradients are anchors.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// q [B, H, Sq, D]; k and v [B, Hkv, Sk, D] with H a multiple of Hkv (grouped queries: query head h reads key head
/// h / (H / Hkv)). nums[0] = scale; ints[0] = 1 if causal: query i sees keys j <= i + n - Sq. n is Sk or, with
/// an operand `keys` (i32, one number or [B]), that number for the batch entry, 0..Sk: keys and values beyond it are
/// not read. Accumulates in f32 and yields f32 [B, H, Sq, D], NaN where a query sees no key.
struct Attention : Anchor {
  static constexpr auto name = "attention";
  static constexpr int kArity = -1, kFactors = 3;
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape) {
    TENON_CHECK(Usage, in.size() == 3 || in.size() == 4, "attention") << "needs q, k, v and optionally keys";
    const Shape &q = in[0].shape(), &k = in[1].shape(), &v = in[2].shape();
    const bool good = q.rank() == 4 && k.rank() == 4 && q[0] == k[0] && k == v && q[3] == k[3] && k[1] > 0 &&
                      q[1] % k[1] == 0 && k[2] > 0;
    TENON_CHECK(Usage, good, "attention") << "q " << q.str() << ", k " << k.str() << ", v " << v.str()
                                          << " do not fit: expected q [B,H,Sq,D], k and v [B,Hkv,Sk,D]";
    TENON_CHECK(Usage, attrs.nums.size() == 1 && attrs.ints.size() == 1, "attention")
        << "needs a scale and a causal flag";
    TENON_CHECK(Usage, !attrs.ints[0] || k[2] >= q[2], "attention")
        << "causal attention needs at least as many keys as queries";
    const bool counted =
        in.size() == 3 || (in[3].dtype() == DType::I32 && (in[3].shape().rank() == 0 || in[3].shape() == Shape{q[0]}));
    TENON_CHECK(Usage, counted, "attention") << "keys must be i32, one number or one for each batch entry, got "
                                             << name_of(in[3].dtype()) << in[3].shape().str();
    shape = q;
  }
  static void reference(const Node& n, std::span<const double* const> in, double* out);
  /// Recomputes p = e^(scale q k^T - log-sum-exp) from the log-sum-exp that the forward pass stores beside its result.
  /// Queries that share keys are rows of one matrix, so that their gradients are summed in a fixed order.
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
};

/// Operands and attributes as Attention. f32 [B, H, Sq, 1]: log of the sum of e^(scale q k^T) over the keys that a
/// query sees; -inf where it sees none.
struct AttentionLse : Anchor {
  static constexpr auto name = "attention_lse";
  static constexpr std::string_view companion_of = "attention";
  static constexpr int kArity = -1, kFactors = 3;
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape) {
    Attention::infer(in, attrs, shape);
    shape[3] = 1;
  }
  static void reference(const Node& n, std::span<const double* const> in, double* out);
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
};

/// Operands: q, k, v as in Attention; g [B, H, Sq, D], the gradient of its result; lse [B, H, Sq, 1], its
/// AttentionLse; delta [B, H, Sq, 1], the sum of g * result over a row; optionally `keys`. Attributes as Attention.
struct AttentionGradient : Anchor {
  static constexpr int kArity = -1, kFactors = 4;
  static constexpr size_t kOperands = 6;  ///< without `keys`
  /// Checks only: the shape stays q's.
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape);
  /// The gradients of this anchor, derived from the products that it stands for.
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
};

/// f32 [B, H, Sq, D]: the gradient of q, scale ds k.
struct AttentionQueryGradient : AttentionGradient {
  static constexpr auto name = "attention_query_gradient";
  static Expr apart(const Expr& node);
};

/// f32 [B, Hkv, Sk, 2 D]: gradients of k, scale ds^T q, and of v, p^T g; summed over heads that share keys.
struct AttentionKeyGradient : AttentionGradient {
  static constexpr auto name = "attention_key_gradient";
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape) {
    AttentionGradient::infer(in, attrs, shape);
    shape = in[1].shape();
    shape[3] *= 2;
  }
  static Expr apart(const Expr& node);
};

/// The gradient of q as a second result of that of keys, which computes the same scores.
struct AttentionQuerySums : AttentionQueryGradient {
  static constexpr auto name = "attention_query_sums";
  static constexpr std::string_view companion_of = "attention_key_gradient";
};

}  // namespace tenon::nodes

NODE(Attention)
NODE(AttentionLse)
NODE(AttentionQueryGradient)
NODE(AttentionKeyGradient)
NODE(AttentionQuerySums)

namespace tenon {

/// softmax(scale * q k^T) v per head; q [B,H,Sq,D], k and v [B,Hkv,Sk,D]. `keys`: an i32 operand that says
/// how many of the Sk keys there are; the causal mask counts from the last of these.
inline Expr attention(const Expr& q, const Expr& k, const Expr& v, double scale, bool causal = false,
                      const Expr& keys = {}) {
  std::vector<Expr> in{q, k, v};
  if (keys) in.push_back(keys);
  return make_node<nodes::Attention>(in, {.ints = {causal}, .nums = {scale}});
}

/// The log-sum-exp that belongs to the result `y` of attention.
inline Expr attention_lse(const Expr& y) {
  TENON_CHECK(Usage, y.is<nodes::Attention>(), "attention_lse")
      << "expected an attention node, got " << (y ? y->name() : "nothing");
  return make_node<nodes::AttentionLse>(y->in, y->attrs);
}

/// True for the anchors that compute attention's gradients.
inline bool is_attention_gradient(const Expr& e) { return e->type->vjp == &nodes::AttentionGradient::vjp; }
/// True for attention and its gradients, which multiply heads of q, k and v.
inline bool multiplies_heads(const Expr& e) { return e.is<nodes::Attention>() || is_attention_gradient(e); }

}  // namespace tenon
