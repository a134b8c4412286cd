// Draws tokens from rows of scores, by a threshold search instead of a sort, with random numbers determined by seeds.
#pragma once
#include "tenon/core/draw.h"
#include "tenon/core/philox.h"
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// Operands: scores [R, V]; rule f32 [R, 4], the members of DrawRule in order; seed i32 [R, 4], 16 bits each, lowest
/// first; counter i32 [R]. Yields f32 [R, 2]: the token drawn with philox_uniform(seed, counter) (draw.h) and its
/// log-probability, NaN if there is none. No gradient.
struct Sample : Anchor {
  static constexpr auto name = "sample";
  static constexpr int kArity = 4, kFactors = 1;
  static void infer(std::span<const Expr> in, const Attrs&, Shape& shape) {
    const Shape& s = in[0].shape();
    constexpr int64_t kMaxTokens = int64_t{1} << 24;  // integers that f32 represents exactly
    TENON_CHECK(Usage, s.rank() == 2 && s[1] > 0 && s[1] <= kMaxTokens, "sample")
        << "expected scores [R, V], got " << s.str();
    const auto is = [&](int i, DType t, const Shape& x) { return in[i].dtype() == t && in[i].shape() == x; };
    TENON_CHECK(Usage, is(1, DType::F32, {s[0], 4}) && is(2, DType::I32, {s[0], 4}) && is(3, DType::I32, {s[0]}),
                "sample")
        << "scores " << s.str() << " need a rule f32 [R, 4], a seed i32 [R, 4] and a counter i32 [R]";
    shape = {s[0], 2};
  }
  static void reference(const Node& n, std::span<const double* const> in, double* out) {
    const int64_t tokens = n.in[0].shape()[1];
    for (int64_t r = 0; r < n.shape[0]; ++r) {
      const DrawnToken t =
          draw_row(std::span(in[0] + r * tokens, static_cast<size_t>(tokens)), in[1] + 4 * r, in[2] + 4 * r, in[3][r]);
      out[2 * r] = t.id;
      out[2 * r + 1] = t.log_probability;
    }
  }
  /// Draws from one row; all operands as numbers of one type.
  template <class T>
  static DrawnToken draw_row(std::span<const T> scores, const T* rule, const T* seed, T counter) {
    uint64_t key = 0;
    for (int i = 3; i >= 0; --i) key = key << 16 | (static_cast<uint64_t>(seed[i]) & 0xffff);
    return draw_token(scores, {rule[0], rule[1], rule[2], rule[3]},
                      philox_uniform(key, static_cast<uint64_t>(counter)));
  }
};

}  // namespace tenon::nodes

NODE(Sample)

namespace tenon {

/// Draws tokens [R, 2] (nodes::Sample).
inline Expr sample(const Expr& scores, const Expr& rule, const Expr& seed, const Expr& counter) {
  return make_node<nodes::Sample>({scores, rule, seed, counter});
}

}  // namespace tenon
