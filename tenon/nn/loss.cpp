#include "tenon/nn/loss.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::nn {
namespace {

// Each row's share of the mean, [rows, 1]; 0 without a target.
Expr shares(const Expr& target) {
  const int64_t rows = target.shape()[0];
  const Expr counts = 1.0 - less(target, constant(target.graph(), 0));
  const Expr number = max(sum(reshape(counts, {1, rows})), constant(target.graph(), 1));
  return materialize(counts / number);
}

// Rows with more classes are reduced in blocks of them, each of which a device can hold whole.
constexpr int64_t kBlockClasses = 16384;
constexpr double kNoClass = -1e30;  // a logit whose exponential is 0

// Classes split into blocks of equal length, with a few padding classes if no suitable number of blocks divides them.
struct ClassBlocks {
  int64_t classes, count, length;
  explicit ClassBlocks(int64_t n) : classes(n), count((n + kBlockClasses - 1) / kBlockClasses), length(n) {
    const int64_t least = count;
    while (count < 2 * least && n % count) ++count;
    if (n % count) count = least;
    length = (n + count - 1) / count;
  }
  int64_t padded() const { return count * length; }
};

// Logits [m, padded]; those beyond the last class are so low that they do not count.
Expr padded_logits(const Expr& logits, const ClassBlocks& p) {
  if (p.padded() == p.classes) return logits;
  Graph& g = logits.graph();
  return where(less(iota(g, p.padded()), constant(g, static_cast<double>(p.classes))), logits, constant(g, kNoClass));
}

// log of the sum of e^logit of each row; reduces the last axis to 1.
Expr log_sum_exp_of_rows(const Expr& x) {
  const Expr top = reduce_max(x);
  return top + log(sum(exp(x - top)));
}

// The same for [m, padded], block by block, in one launch that reads the logits once. Rollouts and losses sum in the
// same order.
Expr log_sum_exp(const Expr& logits, const ClassBlocks& p) {
  if (p.count == 1) return log_sum_exp_of_rows(logits);
  const int64_t rows = logits.shape()[0];
  const Expr of_blocks = materialize(log_sum_exp_of_rows(reshape(logits, {rows, p.count, p.length})));
  return log_sum_exp_of_rows(reshape(of_blocks, {rows, p.count}));
}

// The target classes of rows, [m, 1], and their positions in rows split into blocks. part() selects some of the rows.
struct Targets {
  Expr classes;  // negative: none
  Expr block;    // i32 [m]: index among all blocks of `chunk` rows; a row without a target has its first
  Expr inside;   // f32 [m, 1]: the class's index within this block
  Targets(const Expr& target, const ClassBlocks& p, int64_t chunk) : classes(target) {
    if (p.count == 1) return;
    Graph& g = target.graph();
    const auto length = static_cast<double>(p.length), count = static_cast<double>(p.count);
    const int64_t rows = target.shape()[0];
    const Expr row = fmod(reshape(iota(g, rows), {rows, 1}), constant(g, static_cast<double>(chunk)));
    const Expr own = sum(1.0 - less(target, (iota(g, p.count) + 1.0) * length));  // blocks that end before the target
    block = materialize(reshape(cast(row * count + own, DType::I32), {rows}));
    inside = materialize(target - own * length);
  }
  Targets part(int64_t begin, int64_t end) const {
    Targets out = *this;
    for (Expr* x : {&out.classes, &out.block, &out.inside})
      if (*x) *x = slice(*x, 0, begin, end);
    return out;
  }
};

// Each row's logit of its target class, [m, 1], read from the one block that contains it.
Expr chosen_logit(const Expr& logits, const Targets& t, const ClassBlocks& p) {
  const bool whole = p.count == 1;
  const Expr from = whole ? logits : gather(reshape(logits, {logits.shape()[0] * p.count, p.length}), t.block);
  Graph& g = logits.graph();
  return sum(where(equal(iota(g, p.length), whole ? t.classes : t.inside), from, constant(g, 0)));
}

struct LossOfRows {
  Expr losses, nll, d_hidden, d_weight;
};
using TermsOfRows = std::function<TokenTerm(const Expr& nll)>;

// The loss of some rows: hidden [m, D]; weight is zero-padded to whole blocks.
LossOfRows of_rows(const Expr& hidden, const Expr& weight, const Targets& targets, const TermsOfRows& terms,
                   const ClassBlocks& p) {
  const Expr logits = padded_logits(tenon::linear(hidden, weight), p);
  const Expr lse = materialize(log_sum_exp(logits, p));
  const Expr nll = materialize(lse - chosen_logit(logits, targets, p));  // then the logits can be freed
  const TokenTerm term = terms(nll);
  const Expr hit = equal(iota(weight.graph(), p.padded()), targets.classes);
  const Expr d_logits = cast((exp(logits - lse) - hit) * term.slope, weight.dtype());
  return {materialize(term.loss), nll, tenon::linear(d_logits, transpose(weight)),
          tenon::linear(transpose(d_logits), transpose(hidden))};
}

}  // namespace

Expr log_sum_exp(const Expr& logits) {
  const Shape& s = logits.shape();
  TENON_CHECK(Usage, s.rank() == 2 && s.numel() > 0, "log_sum_exp") << "expected [rows, V], got " << s.str();
  const ClassBlocks blocks(s[1]);
  return log_sum_exp(padded_logits(pad(logits, {0, 0, 0, blocks.padded() - s[1]}), blocks), blocks);
}

CrossEntropy cross_entropy(const Expr& hidden, const Expr& weight, const Expr& target, int64_t chunk, int first_stage) {
  const Expr share = shares(reshape(target, {target.shape().numel(), 1}));
  const auto terms = [&](const Expr& nll, int64_t begin, int64_t end) -> TokenTerm {
    const Expr part = slice(share, 0, begin, end);
    return {nll * part, part};
  };
  const TokenLoss l = token_loss(hidden, weight, target, terms, chunk, first_stage);
  return {l.loss, l.d_hidden, l.d_weight};
}

TokenLoss token_loss(const Expr& hidden, const Expr& weight, const Expr& target, const TokenTerms& terms, int64_t chunk,
                     int first_stage) {
  const Shape &h = hidden.shape(), &w = weight.shape();
  constexpr int64_t kMaxClasses = int64_t{1} << 24;  // integers that f32 represents exactly
  TENON_CHECK(Usage, w.rank() == 2 && h.rank() >= 1 && h[-1] == w[1] && w.numel() > 0 && w[0] <= kMaxClasses,
              "cross_entropy")
      << "hidden " << h.str() << " and weight " << w.str() << " do not fit: expected [.., D] and [V, D]";
  TENON_CHECK(Usage, target.dtype() == DType::I32 && h.rows() > 0 && target.shape().numel() == h.rows(),
              "cross_entropy")
      << "expected one i32 target for each of " << h.rows() << " rows, got " << name_of(target.dtype())
      << target.shape().str();
  TENON_CHECK(Usage, chunk >= 1 && first_stage >= 0, "cross_entropy")
      << "expected chunks of 1 row or more, got " << chunk;
  const int64_t rows = h.rows();
  const ClassBlocks blocks(w[0]);
  TENON_CHECK(Usage, std::min(chunk, rows) * blocks.count <= kMaxClasses, "cross_entropy")
      << "chunks of " << chunk << " rows have more than " << kMaxClasses << " blocks";
  const Targets targets(reshape(target, {rows, 1}), blocks, chunk);
  const Expr padded = pad(weight, {0, blocks.padded() - w[0], 0, 0});
  std::vector<Expr> losses, nll, d_hidden;
  Expr d_weight;
  int stage = first_stage;
  for (int64_t begin = 0; begin < rows; begin += chunk, ++stage) {
    const int64_t end = std::min(begin + chunk, rows);
    const Expr own = slice(reshape(barrier(hidden, stage), {rows, h[-1]}), 0, begin, end);
    const LossOfRows r = of_rows(
        cast(own, weight.dtype()), padded, targets.part(begin, end),
        [&](const Expr& x) { return terms(x, begin, end); }, blocks);
    losses.push_back(r.losses);
    nll.push_back(r.nll);
    d_hidden.push_back(r.d_hidden);
    d_weight = d_weight ? d_weight + r.d_weight : r.d_weight;
  }
  return {reshape(sum(reshape(concat(losses, 0), {1, rows})), {}), reshape(concat(nll, 0), {rows}),
          reshape(concat(d_hidden, 0), h), slice(d_weight, 0, 0, w[0])};
}

}  // namespace tenon::nn
