// Folds a linear layer of another linear layer's sum into one layer whose weights are products of both layers' weights.
#include <utility>

#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/plan/rewrite.h"

namespace tenon {
namespace {

constexpr int64_t kLineBytes = 128;  // rows of joined operands are copied in such lines, the seam between two

// A layer whose operand is the sum of another layer's result, its bias, and something else.
struct Chain {
  Expr layer, bias, beside;
};

class ProductFolder {
 public:
  ProductFolder(Graph& g, std::span<const Expr> results) : graph_(g), users_(results) {}

  std::vector<Expr> folded(std::span<const Expr> roots) {
    const Replace replace = [this](const Expr& e, std::span<const Expr> in) { return fold(e, in); };
    return rebuild(graph_, roots, replace, memo_);
  }

 private:
  static bool is_bias(const Expr& e) {
    const Expr bias = constant_row(e);
    return bias && bias.is<nodes::Param>() && !is_computed(bias);
  }
  // The weights before rounding, as f32; empty unless they are a parameter, possibly reshaped.
  Expr unrounded(const Expr& w) const {
    Expr p = w;
    while (p.is<nodes::Reshape>()) p = p->in[0];
    if (!p.is<nodes::Param>() || is_computed(p)) return {};
    return reshape(param(graph_, p->attrs.text, DType::F32, p.shape()), w.shape());
  }

  // Adds the terms of the sum `e` to the chain; false if it is not a chain.
  bool add_terms(const Expr& e, Chain& c) const {
    Expr* place = &c.beside;
    if (e.is<nodes::Add>() && users_.only_one(e)) return add_terms(e->in[0], c) && add_terms(e->in[1], c);
    if (constant_layer(e) && users_.only_one(e) && !c.layer) place = &c.layer;
    if (is_bias(e)) place = &c.bias;
    return !std::exchange(*place, e);
  }

  // True if `e` is in memory whether or not a product reads it.
  bool is_stored(Expr e) const {
    bool shared = users_.of(e).size() > 1;
    for (; e.is<nodes::Reshape>(); shared = shared || users_.of(e).size() > 1) e = e->in[0];
    return shared || is_memory_leaf(e) || users_.is_root(e);
  }

  // The chain below the operand of layer `e`; without a layer if `e` is not to be folded.
  Chain chain_of(const Expr& e) const {
    const Expr& sum = e->in[0];
    const int64_t columns = sum.shape().cols();
    Expr x = sum;
    for (; x.is<nodes::Reshape>() || (x.is<nodes::Cast>() && x.dtype() == sum.dtype()); x = x->in[0])
      if (!users_.only_one(x) || x->in[0].shape().rank() == 0 || x->in[0].shape().cols() != columns) return {};
    Chain c;
    if (!add_terms(x, c) || !c.layer || !unrounded(c.layer->in[1]) || !unrounded(e->in[1])) return {};
    const Expr& front = c.layer->in[0];
    const int64_t beside = c.beside ? columns : 0, rows = e.shape().cols(), depth = front.shape().cols();
    const bool typed = front.dtype() == sum.dtype() && c.layer->attrs.dtype.has_value() == e->attrs.dtype.has_value();
    const bool joins = !c.beside || (c.beside.dtype() == sum.dtype() && c.beside.shape() == x.shape() &&
                                     is_stored(c.beside) && depth * size_of(sum.dtype()) % kLineBytes == 0);
    return typed && joins && rows * (depth + beside) <= columns * (depth + rows) ? c : Chain();
  }

  Expr fold(const Expr& e, std::span<const Expr> in) {
    if (const auto it = biased_.find(e.get()); it != biased_.end()) return in[it->second];
    const Chain c = constant_layer(e) ? chain_of(e) : Chain();
    if (!c.layer) return {};
    const Expr& w = in[1];
    const Expr outer = unrounded(e->in[1]), inner = unrounded(c.layer->in[1]);
    const auto over_rows = [&](const Expr& x) {
      Shape rows = e->in[0].shape();
      rows[-1] = x.shape().cols();
      return reshape(memo_.at(x.get()), rows);
    };
    Expr x = over_rows(c.layer->in[0]), both = computed_param(linear(outer, transpose(inner)), w.dtype());
    if (c.beside) {
      x = concat({x, over_rows(c.beside)}, -1);
      both = concat({both, w}, 1);
    }
    const Expr y = with_operands(e, {x, both});
    return c.bias ? y + computed_param(bias_behind(e, outer, c.bias->in[0]), DType::F32) : y;
  }

  // The inner layer's bias times the outer weights, plus the outer layer's own bias, which is then not added again.
  Expr bias_behind(const Expr& e, const Expr& outer, const Expr& bias) {
    const int64_t columns = bias.shape()[0];
    const Expr out = reshape(linear(reshape(cast(bias, DType::F32), {1, columns}), outer), {outer.shape()[0]});
    const Expr add = users_.only_one(e) ? users_.of(e)[0] : Expr();
    if (!add || !add.is<nodes::Add>()) return out;
    const size_t layer = add->in[0] == e ? 0 : 1;
    const Expr& own = add->in[1 - layer];
    if (!is_bias(own)) return out;
    biased_[add.get()] = layer;
    return out + cast(own->in[0], DType::F32);
  }

  Graph& graph_;
  const Users users_;
  std::unordered_map<const Node*, size_t> biased_;  // adds of a bias that the layer includes now -> operand: the layer
  Memo memo_;
};

}  // namespace

std::vector<Expr> fold_products(Graph& g, std::span<const Expr> roots) { return ProductFolder(g, roots).folded(roots); }

}  // namespace tenon
