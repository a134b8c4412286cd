// Multi-head attention over token matrices.
#pragma once
#include "tenon/nn/scope.h"

namespace tenon::nn {

enum class Mask { None, Causal };

/// softmax(q k^T / sqrt(D)) v with D = C / heads: q [B,Sq,C], k and v [B,Sk,C], head h in columns h D .. (h+1) D.
/// q, k, v and the result [B,Sq,C] are stored as `act`. Throws Error(Usage) for other shapes, and unless the heads
/// divide C.
Expr attention(const Expr& q, const Expr& k, const Expr& v, int64_t heads, DType act, Mask mask = Mask::None);

/// Images [N,H,W,C] as token matrices [N,H*W,C], row by row. Throws Error(Usage) for another rank.
Expr tokens_of_image(const Expr& x);

}  // namespace tenon::nn
