// Attention's reference and gradient rules: the gradient anchors, their references, and the products they stand for,
// which run on devices without a kernel that keeps only a tile of scores at a time.
#include <algorithm>
#include <cmath>

#include "tenon/core/matrix_product.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/expr/vjp.h"

namespace tenon {
namespace {

// x as a factor of a product in `arithmetic`, if that is set.
Expr factor(const Expr& x, std::optional<DType> arithmetic) {
  return !arithmetic || holds(*arithmetic, x.dtype()) ? x : cast(x, *arithmetic);
}

// The queries that share keys, as rows of one matrix, and their softmax over visible keys, [B, Hkv, rows, Sk]. The
// node's first operands are q, k and v; products use its arithmetic, if set.
class AttentionRows {
 public:
  // `keys`: the place of the number of keys among the operands, if they have it.
  AttentionRows(const Node& n, const Expr& lse, size_t keys)
      : node_(n),
        keys_(n.in.size() > keys ? n.in[keys] : Expr()),
        arithmetic_(arithmetic_of(Expr(&n))),
        count_(n.in[0].shape()[1] / n.in[1].shape()[1] * n.in[0].shape()[2]),
        queries_(by_keys(n.in[0])) {
    p_ = exp(product(queries_, n.in[1]) * n.attrs.nums[0] - by_keys(lse));
  }
  const Expr& queries() const { return queries_; }
  Expr by_keys(const Expr& x) const {
    const Shape& k = node_.in[1].shape();
    return reshape(x, {k[0], k[1], count_, x.shape()[3]});
  }
  // x where row r, i.e. query r % queries, sees a key, else 0. Batch entries may have numbers of keys of their own.
  Expr seen(const Expr& x) const {
    const bool causal = node_.attrs.ints[0] != 0;
    if (!causal && !keys_) return x;
    Graph& g = x.graph();
    const int64_t queries = node_.in[0].shape()[2], all = node_.in[1].shape()[2];
    Expr end = keys_ ? cast(keys_, DType::F32) : constant(g, static_cast<double>(all));
    if (end.shape().rank() == 1) end = reshape(end, {end.shape()[0], 1, 1, 1});
    if (causal) {
      const Expr query = reshape(broadcast(iota(g, queries), {count_ / queries, queries}), {count_, 1});
      end = query + end - static_cast<double>(queries - 1);
    }
    return where(less(iota(g, all), end), x, constant(g, 0));
  }
  Expr p() const { return seen(p_); }
  // The gradient of the scores, given that of the softmax's result.
  Expr of_scores(const Expr& of_weights) const { return seen(p_ * of_weights) * node_.attrs.nums[0]; }
  Expr of_queries(const Expr& of_scores) const {
    return reshape(product(of_scores, transpose(node_.in[1])), node_.in[0].shape());
  }
  Expr product(const Expr& a, const Expr& b) const {
    if (!arithmetic_) return linear(a, b);
    return multiplied_in(linear(factor(a, arithmetic_), factor(b, arithmetic_)), *arithmetic_);
  }

 private:
  const Node& node_;
  Expr keys_;
  std::optional<DType> arithmetic_;
  int64_t count_;
  Expr queries_, p_;
};

// Transposes x [rows, columns].
std::vector<double> transposed(const double* x, int64_t rows, int64_t columns) {
  std::vector<double> out(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows * columns; ++i) out[static_cast<size_t>(i % columns * rows + i / columns)] = x[i];
  return out;
}

// The rows of a gradient node, and the gradient of the scores.
struct Parts {
  AttentionRows rows;
  Expr of_result, of_scores;
  explicit Parts(const Node& n)
      : rows(n, n.in[4], nodes::AttentionGradient::kOperands),
        of_result(rows.by_keys(n.in[3])),
        of_scores(rows.of_scores(rows.product(of_result, n.in[2]) - rows.by_keys(n.in[5]))) {}
};

// The number of keys of batch entry `b`.
int64_t keys_of(const Node& n, std::span<const double* const> in, int64_t b) {
  const int64_t all = n.in[1].shape()[2];
  if (n.in.size() == 3) return all;
  const double keys = in[3][n.in[3].shape().rank() ? b : 0];
  TENON_CHECK(Numeric, keys >= 0 && keys <= static_cast<double>(all), "attention")
      << keys << " keys, expected 0.." << all;
  return static_cast<int64_t>(keys);
}

// Calls use(row, rows, kv, seen, scores) for blocks of queries: rows [row, row + rows) of q, with heads numbered across
// the batch. `scores` is [rows][Sk]: their products with the first `seen` keys of key head `kv`, the only keys they
// see.
template <class Use>
void for_scores(const Node& n, std::span<const double* const> in, const Use& use) {
  const Shape &q = n.in[0].shape(), &k = n.in[1].shape();
  const int64_t keys = k[2], depth = q[3];
  // A few rows at a time; one under a causal mask, so that no masked value is multiplied, not even by 0.
  const int64_t block = n.attrs.ints[0] ? 1 : 64;
  std::vector<double> p(static_cast<size_t>(block * keys));
  for (int64_t head = 0; head < q[0] * q[1]; ++head) {
    const int64_t kv = head / q[1] * k[1] + head % q[1] / (q[1] / k[1]), there = keys_of(n, in, head / q[1]);
    for (int64_t i = 0; i < q[2]; i += block) {
      const int64_t row = head * q[2] + i, rows = std::min(block, q[2] - i);
      const int64_t seen = std::max<int64_t>(n.attrs.ints[0] ? i + there - q[2] + 1 : there, 0);
      multiply_transposed({in[0] + row * depth, rows, depth, depth}, {in[1] + kv * keys * depth, seen, depth, depth},
                          p.data(), keys);
      use(row, rows, kv, seen, p.data());
    }
  }
}

// In place: e^(scale s) / sum of e^(scale s). Returns the logarithm of that sum, -inf for none.
double softmax(std::span<double> s, double scale) {
  double top = -INFINITY, total = 0;
  for (double& x : s) top = std::max(top, x *= scale);
  for (double& x : s) total += x = std::exp(x - top);
  for (double& x : s) x /= total;
  return top + std::log(total);
}

}  // namespace

void nodes::Attention::reference(const Node& n, std::span<const double* const> in, double* out) {
  const int64_t keys = n.in[1].shape()[2], width = n.in[2].shape()[3];
  std::vector<double> vt;
  int64_t of = -1;  // the key head that vt belongs to
  for_scores(n, in, [&](int64_t row, int64_t rows, int64_t kv, int64_t seen, double* p) {
    if (seen == 0) {
      std::fill_n(out + row * width, rows * width, NAN);
      return;
    }
    if (std::exchange(of, kv) != kv) vt = transposed(in[2] + kv * keys * width, keys, width);
    for (int64_t r = 0; r < rows; ++r) softmax({p + r * keys, static_cast<size_t>(seen)}, n.attrs.nums[0]);
    multiply_transposed({p, rows, seen, keys}, {vt.data(), width, seen, keys}, out + row * width, width);
  });
}

void nodes::AttentionLse::reference(const Node& n, std::span<const double* const> in, double* out) {
  const int64_t keys = n.in[1].shape()[2];
  for_scores(n, in, [&](int64_t row, int64_t rows, int64_t, int64_t seen, double* p) {
    for (int64_t r = 0; r < rows; ++r)
      out[row + r] = softmax({p + r * keys, static_cast<size_t>(seen)}, n.attrs.nums[0]);
  });
}

std::vector<Expr> nodes::Attention::vjp(const Expr& node, const Expr& g) {
  // The result in the type its readers see. The gradients of keys and values are stored in their type if gradients()
  // would round both.
  const Expr &q = node->in[0], &k = node->in[1], &v = node->in[2];
  const bool half = is_float(q.dtype()) && size_of(q.dtype()) == 2 && k.dtype() == q.dtype() && v.dtype() == q.dtype();
  const bool weights = k->rate == Rate::Constant || v->rate == Rate::Constant;
  const Expr seen = half ? cast(node, q.dtype()) : node;
  std::vector<Expr> in{q, k, v, factor(g, arithmetic_of(node)), attention_lse(node), sum(g * seen)};
  in.insert(in.end(), node->in.begin() + 3, node->in.end());
  Expr of_keys = make_node<AttentionKeyGradient>(in, node->attrs);
  if (half && !weights) of_keys = cast(of_keys, q.dtype());
  const int64_t depth = q.shape()[3], all = of_keys.shape()[3];
  std::vector<Expr> out(node->in.size());
  out[0] = make_node<AttentionQueryGradient>(in, node->attrs);
  out[1] = slice(of_keys, 3, 0, depth);
  out[2] = slice(of_keys, 3, depth, all);
  return out;
}

std::vector<Expr> nodes::AttentionLse::vjp(const Expr& node, const Expr& g) {
  const AttentionRows rows(*node, node, 3);
  const Expr of_scores = rows.of_scores(rows.by_keys(g));
  std::vector<Expr> out(node->in.size());
  out[0] = rows.of_queries(of_scores);
  out[1] = rows.product(transpose(of_scores), transpose(rows.queries()));
  return out;
}

void nodes::AttentionGradient::infer(std::span<const Expr> in, const Attrs& attrs, Shape&) {
  TENON_CHECK(Usage, in.size() == kOperands || in.size() == kOperands + 1, "attention's gradient")
      << "needs q, k, v, g, lse, delta and optionally keys";
  Shape result;
  std::vector<Expr> of_attention(in.begin(), in.begin() + 3);
  of_attention.insert(of_attention.end(), in.begin() + kOperands, in.end());
  Attention::infer(of_attention, attrs, result);
  const Shape rows{result[0], result[1], result[2], 1};
  TENON_CHECK(Usage, in[3].shape() == result && in[4].shape() == rows && in[5].shape() == rows, "attention's gradient")
      << "g " << in[3].shape().str() << ", lse " << in[4].shape().str() << ", delta " << in[5].shape().str()
      << " do not fit: expected " << result.str() << ", " << rows.str() << ", " << rows.str();
}

std::vector<Expr> nodes::AttentionGradient::vjp(const Expr& node, const Expr& g) {
  Graph& graph = node.graph();
  std::vector<Expr> places;  // stand in for operands, which may depend on each other; no plan takes their names
  for (size_t i = 0; i < node->in.size(); ++i)
    places.push_back(input(graph, "%operand " + std::to_string(i), node->in[i].dtype(), node->in[i].shape()));
  const std::vector<Expr> floats(places.begin(), places.begin() + kOperands);
  std::vector<Expr> out = gradients(node->type->apart(graph.make(*node->type, places, node->attrs)), g, floats);
  Memo memo;
  for (size_t i = 0; i < places.size(); ++i) memo.emplace(places[i].get(), node->in[i]);
  for (Expr& x : out) x = rebuild(graph, x, memo);
  out.resize(node->in.size());
  return out;
}

Expr nodes::AttentionQueryGradient::apart(const Expr& node) {
  const Parts parts(*node);
  return parts.rows.of_queries(parts.of_scores);
}

Expr nodes::AttentionKeyGradient::apart(const Expr& node) {
  const Parts parts(*node);
  const AttentionRows& rows = parts.rows;
  const Expr of_keys = rows.product(transpose(parts.of_scores), transpose(rows.queries()));
  return concat(std::array{of_keys, rows.product(transpose(rows.p()), transpose(parts.of_result))}, 3);
}

}  // namespace tenon
