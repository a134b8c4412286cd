#include "tenon/nn/attention.h"

#include <cmath>

#include "tenon/expr/ops.h"

namespace tenon::nn {

Expr attention(const Expr& q, const Expr& k, const Expr& v, int64_t heads, DType act, Mask mask) {
  const Shape &qs = q.shape(), &ks = k.shape();
  TENON_CHECK(Usage, qs.rank() == 3 && ks.rank() == 3 && ks == v.shape() && qs[0] == ks[0] && qs[2] == ks[2],
              "attention")
      << "q " << qs.str() << ", k " << ks.str() << ", v " << v.shape().str()
      << " do not fit: expected q [B,Sq,C], k and v [B,Sk,C]";
  const int64_t channels = qs[2];
  TENON_CHECK(Usage, heads > 0 && channels % heads == 0, "attention")
      << heads << " heads do not divide the " << channels << " channels of " << q.shape().str();
  const int64_t depth = channels / heads;
  const auto split = [&](const Expr& x) {
    const Expr stored = cast(x, act);
    return permute(reshape(stored, {x.shape()[0], x.shape()[1], heads, depth}), {0, 2, 1, 3});
  };
  const double scale = 1 / std::sqrt(static_cast<double>(depth));
  const Expr out = cast(tenon::attention(split(q), split(k), split(v), scale, mask == Mask::Causal), act);
  return reshape(permute(out, {0, 2, 1, 3}), q.shape());
}

Expr tokens_of_image(const Expr& x) {
  const Shape& s = x.shape();
  TENON_CHECK(Usage, s.rank() == 4, "tokens_of_image") << "expected an image [N,H,W,C], got " << s.str();
  return reshape(x, {s[0], s[1] * s[2], s[3]});
}

}  // namespace tenon::nn
