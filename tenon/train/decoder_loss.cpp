#include "tenon/train/decoder_loss.h"

#include <algorithm>
#include <array>
#include <optional>

#include "tenon/expr/ops.h"
#include "tenon/expr/vjp.h"
#include "tenon/models/decoder_adapter.h"
#include "tenon/nn/loss.h"

namespace tenon::train {
namespace {

struct Inputs {
  Expr tokens, target;
  Inputs(Graph& g, const BatchShape& s)
      : tokens(input(g, "tokens", DType::I32, {s.rows, s.tokens})),
        target(input(g, "target", DType::I32, {s.rows, s.tokens})) {}
};

// For `rows` rows with logits.
int64_t chunk_of(const BatchShape& s, const DecoderConfig& c, int64_t rows) {
  constexpr int64_t kLeast = 512, kStep = 64;  // sizes that products handle well
  if (s.chunk > 0) return s.chunk;
  const int64_t most = std::max(kLeast, s.logit_bytes / (c.vocabulary * size_of(DType::F32)));
  const int64_t parts = (rows + most - 1) / most, each = (rows + parts - 1) / parts;
  return (each + kStep - 1) / kStep * kStep;
}

// Gradients from the loss at the head down to every trained weight; the head's own gradient is added to the embedding's
// if they are tied.
Differentiated below(const DecoderConfig& c, const DecoderHidden& network, const Expr& loss, const Expr& d_hidden,
                     const Expr& d_head, const GradientRule& rule = {}) {
  const bool adapted = c.adapter.rank > 0;
  std::vector<Expr> params;
  for (const Expr& e : topological(std::array{network.hidden}))
    if (e.is<nodes::Param>() && (!adapted || is_adapter_weight(e->attrs.text))) params.push_back(e);
  const std::vector<Expr> grads = gradients(network.hidden, d_hidden, params, rule);
  Differentiated out{loss, {}, {}, {network.hidden}};
  bool tied = adapted;  // then the head is not trained
  for (size_t i = 0; i < params.size(); ++i) {
    const bool is_head = params[i] == network.head;
    tied = tied || is_head;
    out.gradients.push_back({params[i]->attrs.text, is_head ? grads[i] + d_head : grads[i]});
  }
  if (!tied) out.gradients.push_back({network.head->attrs.text, d_head});
  return out;
}

}  // namespace

int64_t logit_bytes(const Backend& backend, int64_t arena_bytes) {
  constexpr int64_t kOfDevice = int64_t{5} << 28;
  const int64_t least = BatchShape().logit_bytes;
  if (!backend.records()) return least;
  return arena_bytes > 0 ? std::clamp(arena_bytes / 5, least, kOfDevice) : kOfDevice;
}

Differentiated decoder_cross_entropy(Graph& g, const DecoderConfig& c, const BatchShape& shape, nn::Precision p) {
  const Inputs in(g, shape);
  const DecoderHidden network = decoder_hidden(c, in.tokens, p);
  const nn::CrossEntropy l =
      nn::cross_entropy(network.hidden, network.head, in.target, chunk_of(shape, c, network.hidden.shape().rows()));
  return below(c, network, l.loss, l.d_hidden, l.d_weight);
}

Differentiated decoder_policy_loss(Graph& g, const DecoderConfig& c, const BatchShape& shape,
                                   const PolicyObjective& objective, nn::Precision p, const SharedShape& shared) {
  const Shape all{shape.rows, shape.tokens}, column{shape.rows * shape.tokens, 1};
  std::optional<SharedInputs> texts;
  if (shared.tokens > 0) texts.emplace(g, shape.tokens, shared);
  const auto at_targets = [&](const Expr& x) { return texts ? texts->at_targets(x) : x; };
  const Expr target = input(g, "target", DType::I32, all);
  const DecoderHidden network = texts ? decoder_hidden(c, texts->tokens(), texts->texts(), p)
                                      : decoder_hidden(c, input(g, "tokens", DType::I32, all), p);
  const auto leaf = [&](const char* name) { return at_targets(reshape(input(g, name, DType::F32, all), column)); };
  const Expr old = leaf("old"), reference = objective.terms.beta > 0 ? leaf("reference") : Expr();
  const Expr advantage =
      at_targets(reshape(broadcast(input(g, "advantage", DType::F32, {shape.rows, 1}), all), column));
  const Expr counted = 1.0 - less(target, constant(g, 0));
  const Expr tokens = objective.kind == nn::PolicyLoss::Dapo ? scalar(g, "tokens_of_update") : Expr();
  const Expr weight =
      at_targets(materialize(reshape(nn::token_weights(counted, objective.kind, objective.longest, tokens), column)));
  const auto terms = [&](const Expr& nll, int64_t begin, int64_t end) -> nn::TokenTerm {
    const auto part = [&](const Expr& x) { return x ? slice(x, 0, begin, end) : x; };
    const Expr loss =
        nn::policy_terms(-nll, part(old), part(reference), part(advantage), part(weight), objective.terms);
    return {loss, materialize(gradients(loss, {}, std::array{nll})[0])};
  };
  const Expr hidden = texts ? texts->of_targets(network.hidden) : network.hidden;
  const nn::TokenLoss l = nn::token_loss(hidden, network.head, at_targets(reshape(target, column)), terms,
                                         chunk_of(shape, c, hidden.shape().rows()));
  const Expr d_hidden = texts ? texts->from_targets(l.d_hidden) : l.d_hidden;
  Differentiated out = below(c, network, l.loss, d_hidden, l.d_weight, texts ? texts->rule() : GradientRule());
  out.results.push_back({"nll", l.nll});
  return out;
}

Plan plan_log_probabilities(const DecoderConfig& c, const BatchShape& shape, nn::Precision p, const Target& target) {
  Graph g;
  const Inputs in(g, shape);
  const DecoderHidden network = decoder_hidden(c, in.tokens, p);
  const auto nothing = [&](const Expr& nll, int64_t, int64_t) -> nn::TokenTerm { return {nll, nll}; };
  const nn::TokenLoss l = nn::token_loss(network.hidden, network.head, in.target, nothing,
                                         chunk_of(shape, c, network.hidden.shape().rows()));
  PlanOptions options;
  options.name = "log-probabilities";
  options.fold_scales = false;  // as in training and rollouts, to compute the same bits
  options.target = target;
  return make_plan(std::vector<Result>{{"nll", l.nll}}, options);
}

}  // namespace tenon::train
