#include "tenon/nn/loss.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::nn {
namespace {

// Each row's part of the mean, [rows, 1]: 0 without a target.
Expr shares(const Expr& target) {
  const int64_t rows = target.shape()[0];
  const Expr counts = 1.0 - less(target, constant(target.graph(), 0));
  const Expr number = max(sum(reshape(counts, {1, rows})), constant(target.graph(), 1));
  return materialize(counts / number);
}

struct Rows {
  Expr losses, d_hidden, d_weight;
};

// The loss of some rows: hidden [m, D]; target and share [m, 1].
Rows of_rows(const Expr& hidden, const Expr& weight, const Expr& target, const Expr& share) {
  const Expr logits = tenon::linear(hidden, weight);
  const Expr top = reduce_max(logits), lse = top + log(sum(exp(logits - top)));
  const Expr hit = equal(iota(weight.graph(), weight.shape()[0]), target);
  const Expr chosen = sum(where(hit, logits, constant(weight.graph(), 0)));
  const Expr d_logits = cast((exp(logits - lse) - hit) * share, weight.dtype());
  return {materialize((lse - chosen) * share), tenon::linear(d_logits, transpose(weight)),
          tenon::linear(transpose(d_logits), transpose(hidden))};
}

}  // namespace

CrossEntropy cross_entropy(const Expr& hidden, const Expr& weight, const Expr& target, int64_t chunk, int first_stage) {
  const Shape &h = hidden.shape(), &w = weight.shape();
  constexpr int64_t kMostClasses = int64_t{1} << 24;  // numbers that f32 tells apart
  TENON_CHECK(Usage, w.rank() == 2 && h.rank() >= 1 && h[-1] == w[1] && w.numel() > 0 && w[0] <= kMostClasses,
              "cross_entropy")
      << "hidden " << h.str() << " and weight " << w.str() << " do not fit: expected [.., D] and [V, D]";
  TENON_CHECK(Usage, target.dtype() == DType::I32 && h.rows() > 0 && target.shape().numel() == h.rows(),
              "cross_entropy")
      << "expected one i32 target for each of " << h.rows() << " rows, got " << name_of(target.dtype())
      << target.shape().str();
  TENON_CHECK(Usage, chunk >= 1 && first_stage >= 0, "cross_entropy") << "chunks of " << chunk << " rows";
  const int64_t rows = h.rows();
  const Expr all = cast(reshape(hidden, {rows, h[-1]}), weight.dtype());
  const Expr targets = reshape(target, {rows, 1}), share = shares(targets);
  std::vector<Expr> losses, d_hidden;
  Expr d_weight;
  int stage = first_stage;
  for (int64_t begin = 0; begin < rows; begin += chunk, ++stage) {
    const auto part = [&](const Expr& x) { return slice(x, 0, begin, std::min(begin + chunk, rows)); };
    const Rows r = of_rows(part(barrier(all, stage)), weight, part(targets), part(share));
    losses.push_back(r.losses);
    d_hidden.push_back(r.d_hidden);
    d_weight = d_weight ? d_weight + r.d_weight : r.d_weight;
  }
  return {reshape(sum(reshape(concat(losses, 0), {1, rows})), {}), reshape(concat(d_hidden, 0), h), d_weight};
}

}  // namespace tenon::nn
