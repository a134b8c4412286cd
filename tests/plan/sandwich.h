// Transformer blocks with norms before and after each layer, shaped like Z-Image's, whose products take rows quantised
// to e4m3: everything between two products is one pass over rows, at any depth.
#pragma once
#include <string>
#include <vector>

#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/plan/plan.h"

namespace tenon::sandwich {

inline constexpr int64_t kTokens = 4352, kDim = 3840, kHeads = 30, kHead = kDim / kHeads, kInner = 10240,
                         kCondition = 256;

struct Quantised {
  Expr q, scale;
};

inline Quantised quantise(const Expr& x) {
  const Expr scale = max(absmax(x), constant(x.graph(), 1e-12)) / 448.0;
  return {cast(x / scale, DType::E4M3), scale};
}

class Sandwich {
 public:
  Graph g;

  Expr in(const std::string& name, const Shape& shape, DType type = DType::BF16, Rate rate = Rate::Step) {
    return input(g, name, type, shape, rate);
  }
  Expr tokens(const std::string& name, int64_t columns = kDim) { return in(name, {1, kTokens, columns}); }

  static Expr rms(const Expr& x) { return x * rsqrt(mean(x * x) + 1e-5); }
  Expr norm(const std::string& name, const Expr& x) {
    return rms(x) * param(g, name + ".weight", DType::F32, {x.shape()[-1]});
  }
  Expr quantised_linear(const std::string& name, const Quantised& x, int64_t outputs) {
    const Expr w = param(g, name + ".weight", DType::E4M3, {outputs, x.q.shape()[-1]});
    return cast(linear(x.q, w) * x.scale * param(g, name + ".scale", DType::F32, {outputs}), DType::BF16);
  }
  // x [1,S,H,D]: pairs of neighbours rotated by angles whose cosines and sines are tables over [S,1,D].
  Expr rope(const Expr& x) {
    const Shape pairs{1, kTokens, kHeads, kHead / 2, 2};
    const auto both = [&](int64_t i) {
      return reshape(broadcast(slice(reshape(x, pairs), -1, i, i + 1), pairs), x.shape());
    };
    const auto table = [&](const char* name) { return in(name, {kTokens, 1, kHead}, DType::F32, Rate::Prompt); };
    return x * table("cos") + both(1) * table("minus_sin_even") + both(0) * table("sin_odd");
  }
  Expr head_norm_rope(const std::string& name, const Expr& x) {
    const Expr heads = norm(name, reshape(x, {1, kTokens, kHeads, kHead}));
    return permute(cast(rope(heads), DType::BF16), {0, 2, 1, 3});
  }
  Expr modulate(const Expr& x, const Expr& scale) { return x * (scale + 1.0); }

  // The block's four parts of the modulation [1,4 dim]: scale and gate of attention, of the feed-forward layers.
  Expr block(const Expr& x0, const Expr& condition, const std::string& p) {
    const Expr all = linear(condition, param(g, p + ".adaln.weight", DType::BF16, {4 * kDim, kCondition}));
    const auto part = [&](int64_t i) { return slice(all, -1, i * kDim, (i + 1) * kDim); };
    const Expr attended = attend(modulate(norm(p + ".norm1", x0), part(0)), p);
    const Expr x1 = cast(x0 + tanh(part(1)) * norm(p + ".norm2", attended), DType::BF16);
    const Quantised h = quantise(modulate(norm(p + ".ffn_norm1", x1), part(2)));
    const Expr both = quantised_linear(p + ".w1_w3", h, 2 * kInner);
    const Expr gated = silu(slice(both, -1, 0, kInner)) * slice(both, -1, kInner, 2 * kInner);
    const Expr fed = quantised_linear(p + ".w2", quantise(cast(gated, DType::BF16)), kDim);
    return cast(x1 + tanh(part(3)) * norm(p + ".ffn_norm2", fed), DType::BF16);
  }
  Expr attend(const Expr& x, const std::string& p) {
    const Expr qkv = quantised_linear(p + ".qkv", quantise(x), 3 * kDim);
    const auto part = [&](int64_t i) { return slice(qkv, -1, i * kDim, (i + 1) * kDim); };
    const Expr v = permute(reshape(part(2), {1, kTokens, kHeads, kHead}), {0, 2, 1, 3});
    const Expr o = cast(attention(head_norm_rope(p + ".norm_q", part(0)), head_norm_rope(p + ".norm_k", part(1)), v,
                                  1 / std::sqrt(static_cast<double>(kHead))),
                        DType::BF16);
    return quantised_linear(p + ".out", quantise(reshape(permute(o, {0, 2, 1, 3}), {1, kTokens, kDim})), kDim);
  }
  // Up to the last linear layer.
  Expr network(int blocks) {
    Expr x = tokens("x");
    const Expr condition = in("c", {1, kCondition}, DType::BF16, Rate::Schedule);
    for (int i = 0; i < blocks; ++i) x = block(x, condition, "layers." + std::to_string(i));
    return linear(cast(rms(x), DType::BF16), param(g, "final.weight", DType::BF16, {64, kDim}));
  }
};

// "rows: bf16[2,3] e4m3[2,3]": what a launch writes.
inline std::string sinks(const Launch& l) {
  std::string out = l.skeleton + ":";
  for (const Output& o : l.outputs) out += " " + std::string(name_of(o.value.dtype())) + o.value.shape().str();
  return out;
}
inline constexpr const char* kRow = "e4m3[1,4352,3840]";
inline constexpr const char* kScale = "f32[1,4352,1]";

inline Plan plan_of(const std::vector<Result>& results, const Target& target = {}) {
  PlanOptions o;
  o.target = target;
  return make_plan(results, o);
}
inline Plan network(int blocks, const Target& target) {
  Sandwich s;
  return plan_of({{"y", s.network(blocks)}}, target);
}
inline const std::vector<Launch>& launches(const Plan& p) { return p.phase(Rate::Step)->launches; }

/// What is between two anchors of a block, up to the anchor that reads it.
struct Part {
  std::string name;
  Expr y;
  std::vector<std::string> passes;  ///< what each of the launches without an anchor writes
};
inline std::vector<Part> parts(Sandwich& s) {
  const std::string scale = std::string("rows: ") + kScale, row = scale + " " + kRow;
  const auto product = [&](const char* name, const Expr& x) { return s.quantised_linear(name, quantise(x), kDim); };
  const auto modulated = [&](const char* name, const Expr& x) {
    return s.modulate(s.norm(name, x), s.in("scale", {1, kDim}, DType::F32));
  };
  const Expr gate = tanh(s.in("gate", {1, kDim}, DType::F32, Rate::Schedule));
  const Expr x = cast(s.tokens("x") + gate * s.norm("norm2", s.tokens("attended")), DType::BF16);
  const Expr next = cast(x + s.norm("ffn_norm2", product("ffn", modulated("ffn_norm1", x))), DType::BF16);
  const Expr heads = permute(s.in("heads", {1, kHeads, kTokens, kHead}), {0, 2, 1, 3});
  return {
      {"norm, modulate, quantise", product("qkv", modulated("norm1", s.tokens("x"))), {row}},
      {"gate, norm, residual, norm, modulate, quantise",
       product("next", next),
       {std::string("rows: bf16[1,4352,3840] ") + kScale + " " + kRow, row}},
      {"silu, gate, quantise",
       product("w2", silu(s.tokens("w1", kInner)) * s.tokens("w3", kInner)),
       {scale + " e4m3[1,4352,10240]"}},
      {"norm of heads, RoPE",
       attention(s.head_norm_rope("norm_q", s.tokens("q")), s.head_norm_rope("norm_k", s.tokens("k")),
                 s.in("v", {1, kHeads, kTokens, kHead}), 1 / std::sqrt(static_cast<double>(kHead))),
       {"rows: bf16[1,30,4352,128] bf16[1,30,4352,128]"}},
      {"permute, quantise", product("out", reshape(heads, {1, kTokens, kDim})), {row}},
  };
}
/// What each launch of a step without an anchor writes.
inline std::vector<std::string> passes(const Plan& p) {
  std::vector<std::string> out;
  for (const Launch& l : launches(p))
    if (!l.form->anchor) out.push_back(sinks(l));
  return out;
}

}  // namespace tenon::sandwich
