#include "tenon/models/decoder.h"

#include <bit>
#include <cmath>

#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/nn/linear.h"
#include "tenon/nn/norm.h"
#include "tenon/nn/rotary.h"

namespace tenon {
namespace {

nn::Bias bias(bool there) { return there ? nn::Bias::Yes : nn::Bias::No; }

class Network {
 public:
  // With a cache.
  Network(const DecoderConfig& c, const DecoderShape& shape, const Expr& position, nn::Precision p)
      : c_(c), shape_(shape), model_(nn::Scope(position.graph(), p) / "model") {
    const Expr first = reshape(cast(position, DType::F32), {shape.batch, 1});
    const Expr positions = first + count(shape.tokens, {1, shape.tokens});
    const Expr begin = count(shape.batch, {shape.batch, 1}) * static_cast<double>(shape.capacity);
    // Read by every layer.
    place_ = shape.page ? paged(position, positions) : materialize(cast(positions + begin, DType::I32));
    keys_ = cast(cast(position, DType::F32) + static_cast<double>(shape.tokens), DType::I32);
    rotary_ = nn::rotary(positions, c.head_width, c.theta, c.rotary, p.act);
  }

  // Whole texts from their first token, without a cache.
  Network(Graph& g, const DecoderConfig& c, const DecoderShape& shape, nn::Precision p)
      : c_(c), shape_(shape), model_(nn::Scope(g, p) / "model") {
    rotary_ = nn::rotary(count(shape.tokens, {1, shape.tokens}), c.head_width, c.theta, c.rotary, p.act);
  }

  // The same, for tokens that may occur in several texts.
  Network(Graph& g, const DecoderConfig& c, const DecoderShape& shape, const SharedBeginnings& texts, nn::Precision p)
      : c_(c), shape_(shape), model_(nn::Scope(g, p) / "model"), texts_(&texts) {
    const Expr positions = cast(texts.position, DType::F32);
    rotary_ = nn::rotary(reshape(positions, {1, positions.shape().numel()}), c.head_width, c.theta, c.rotary, p.act);
  }

  Expr states(const Expr& tokens, int64_t layers) {
    Expr x = cast(gather(looked_up_table(), tokens), model_.act());
    for (int64_t i = 0; i < layers; ++i) x = layer(i, x);
    return x;
  }

  Decoder run(const Expr& tokens, const Expr& row) {
    Expr x = states(tokens, c_.layers);
    if (!shape_.all_logits) {
      x = reshape(x, {shape_.batch * shape_.tokens, c_.width});
      if (row) x = gather(x, row);
    }
    return {nn::linear(last_norm(x), head()), std::move(states_), place_};
  }

  DecoderHidden hidden(const Expr& tokens) { return {last_norm(states(tokens, c_.layers)), head()}; }

 private:
  Expr count(int64_t n, const Shape& as) const { return reshape(cast(iota(model_.graph(), n), DType::F32), as); }
  Expr table() const { return (model_ / "embed_tokens").weight("weight", {c_.vocabulary, c_.width}); }
  // If weights are wider than the activations that they become, looks them up in that type, so that only it need be
  // kept.
  Expr looked_up_table() const {
    const DType act = model_.act(), stored = model_.precision().weight;
    const nn::Scope s(model_.graph(), {act, holds(stored, act) ? act : stored}, "model.embed_tokens");
    return s.weight("weight", {c_.vocabulary, c_.width});
  }
  Expr head() const {
    if (c_.tied) return table();
    return (nn::Scope(model_.graph(), model_.precision()) / "lm_head").weight("weight", {c_.vocabulary, c_.width});
  }
  Expr last_norm(const Expr& x) const { return nn::rms_norm(model_ / "norm", x, c_.eps); }

  Expr layer(int64_t index, const Expr& input) {
    const nn::Scope s = model_ / "layers" / index;
    const Expr mixed = attend(s / "self_attn", index, nn::rms_norm(s / "input_layernorm", input, c_.eps));
    const Expr x = cast(input + mixed, s.act());
    return cast(x + feed_forward(s / "mlp", nn::rms_norm(s / "post_attention_layernorm", x, c_.eps)), s.act());
  }

  Expr attend(const nn::Scope& s, int64_t index, const Expr& x) {
    const int64_t d = c_.head_width, q_width = c_.heads * d, k_width = c_.key_heads * d;
    const Expr qkv = cast(
        nn::packed_linear(s, x, {{"q_proj", q_width}, {"k_proj", k_width}, {"v_proj", k_width}}, bias(c_.qkv_bias)),
        s.act());
    const int64_t batch = texts_ ? 1 : shape_.batch, tokens = qkv.shape().rows() / batch;
    const auto heads = [&](int64_t from, int64_t count) {
      return reshape(slice(qkv, -1, from, from + count * d), {batch, tokens, count, d});
    };
    const auto turned = [&](const char* norm, int64_t from, int64_t count) {
      const Expr x0 = heads(from, count), x1 = c_.head_norm ? nn::rms_norm(s / norm, x0, c_.eps) : x0;
      return cast(nn::rotate(x1, rotary_), s.act());
    };
    std::array rows_of{turned("q_norm", 0, c_.heads), turned("k_norm", q_width, c_.key_heads),
                       heads(q_width + k_width, c_.key_heads)};
    if (texts_) put_in_texts(rows_of);
    const Expr k = cached(index, ".k", rows_of[1]), v = cached(index, ".v", rows_of[2]);
    const Expr q = permute(rows_of[0], {0, 2, 1, 3});
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    const Expr mixed = cast(attention(q, k, v, scale, true, keys_), s.act());
    const Expr rows = of_tokens(reshape(permute(mixed, {0, 2, 1, 3}), {shape_.batch, shape_.tokens, q_width}));
    return nn::packed_linear(s, rows, {{"o_proj", c_.width}}, bias(c_.output_bias));
  }

  // put_in_texts places heads of tokens [1, N, heads, D] into texts, [batch, tokens, heads, D]. of_tokens gathers rows
  // back from each token's first place.
  void put_in_texts(std::span<Expr> parts) const {
    std::vector<Expr> rows;
    for (const Expr& x : parts) rows.push_back(reshape(x, {x.shape()[1], x.shape()[2] * x.shape()[3]}));
    const Expr placed = materialize(gather(concat(rows, 1), texts_->token_at));
    int64_t from = 0;
    for (Expr& x : parts) {
      const int64_t count = x.shape()[2], to = from + count * x.shape()[3];
      x = reshape(slice(placed, 1, from, to), {shape_.batch, shape_.tokens, count, x.shape()[3]});
      from = to;
    }
  }
  Expr of_tokens(const Expr& rows) const {
    if (!texts_) return rows;
    const Expr places = reshape(rows, {shape_.batch * shape_.tokens, rows.shape()[-1]});
    return materialize(gather(pad(places, {0, 1, 0, 0}), texts_->place_of));
  }

  // [batch, key heads, capacity, D]: the layer's cache after writing rows [batch, tokens, key heads, D]; without a
  // cache only the rows.
  Expr cached(int64_t index, const char* part, const Expr& rows) {
    if (!place_) return permute(rows, {0, 2, 1, 3});
    const Shape all{shape_.places(), c_.key_heads, c_.head_width};
    const std::string name = "cache." + std::to_string(index) + part;
    const Expr after = update_rows(state(model_.graph(), name, model_.act(), all), place_, rows);
    states_.emplace_back(name, after);
    const Shape by_page{shape_.pages, shape_.page, c_.key_heads, c_.head_width};
    const Expr own = shape_.page ? gather(reshape(after, by_page), table_) : after;
    return permute(reshape(own, {shape_.batch, shape_.capacity, c_.key_heads, c_.head_width}), {0, 2, 1, 3});
  }

  // Index in the pool of the tokens at these positions. The page is looked up as a sum over the table's row, computed
  // where it is read, so that one kernel does it all.
  Expr paged(const Expr& position, const Expr& positions) {
    const int64_t n = shape_.capacity / shape_.page;
    const auto page = static_cast<double>(shape_.page);
    table_ = input(model_.graph(), "pages", DType::I32, {shape_.batch, n});
    const Shape all{shape_.batch, shape_.tokens, n};
    const Expr first = cast(broadcast(reshape(position, {shape_.batch, 1, 1}), all), DType::F32);
    const Expr given = cast(broadcast(reshape(table_, {shape_.batch, 1, n}), all), DType::F32);
    const Expr of = floor((first + count(shape_.tokens, {1, shape_.tokens, 1})) * (1 / page));
    const Expr number = sum(given * equal(of, count(n, {1, 1, n})));
    const Expr at = reshape(positions, {shape_.batch, shape_.tokens, 1}), in_page = at - floor(at * (1 / page)) * page;
    return reshape(materialize(cast(number * page + in_page, DType::I32)), {shape_.batch, shape_.tokens});
  }

  Expr feed_forward(const nn::Scope& s, const Expr& x) const {
    // In the activation type, as between layers elsewhere: training keeps it for the backward pass, at half the bytes.
    const Expr both =
        cast(nn::packed_linear(s, x, {{"gate_proj", c_.hidden}, {"up_proj", c_.hidden}}, bias(c_.mlp_bias)), s.act());
    const Expr h = silu(slice(both, -1, 0, c_.hidden)) * slice(both, -1, c_.hidden, 2 * c_.hidden);
    return nn::packed_linear(s, cast(h, s.act()), {{"down_proj", c_.width}}, bias(c_.mlp_bias));
  }

  const DecoderConfig& c_;
  const DecoderShape& shape_;
  nn::Scope model_;
  // Unset without a cache: cache rows of the new tokens [batch, tokens]; number of tokens of each sequence, including
  // the new ones; pages of each sequence.
  Expr place_, keys_, table_;
  nn::Rotary rotary_;
  const SharedBeginnings* texts_ = nullptr;
  std::vector<std::pair<std::string, Expr>> states_;
};

Decoder adapted(const DecoderConfig& c, Decoder d) {
  std::vector<Expr> values{d.logits};
  for (const auto& [name, value] : d.states) values.push_back(value);
  values = nn::with_side_branches(values, nn::branches_of(c.adapter, d.logits));
  d.logits = values[0];
  for (size_t i = 0; i < d.states.size(); ++i) d.states[i].second = values[i + 1];
  return d;
}

}  // namespace

Decoder decoder(const DecoderConfig& c, const DecoderShape& shape, const Expr& tokens, const Expr& position,
                const Expr& row, nn::Precision p) {
  TENON_CHECK(Usage, shape.batch > 0 && shape.tokens > 0 && shape.capacity >= shape.tokens, "decoder")
      << "expected batch > 0 and 0 < tokens <= capacity, got batch " << shape.batch << ", tokens " << shape.tokens
      << ", capacity " << shape.capacity;
  TENON_CHECK(Usage, shape.batch * shape.capacity < (int64_t{1} << 24), "decoder")
      << "a cache of " << shape.batch << " times " << shape.capacity << " tokens has 2^24 rows or more";
  const bool whole = shape.page == 0 || (std::has_single_bit(static_cast<uint64_t>(shape.page)) && shape.pages > 0 &&
                                         shape.capacity % shape.page == 0);
  TENON_CHECK(Usage, whole && shape.page * shape.pages < (int64_t{1} << 24), "decoder")
      << "expected a page size that is a power of two and divides " << shape.capacity
      << ", and fewer than 2^24 tokens in all, got " << shape.pages << " pages of " << shape.page;
  const Shape ids{shape.batch, shape.tokens};
  TENON_CHECK(Usage, tokens.shape() == ids && position.shape() == Shape{shape.batch}, "decoder")
      << "expected tokens " << ids.str() << " and a position for each sequence, got " << tokens.shape().str() << " and "
      << position.shape().str();
  return adapted(c, Network(c, shape, position, p).run(tokens, row));
}

Decoder decoder(Graph& g, const DecoderConfig& c, const DecoderShape& shape, nn::Precision p) {
  const Expr tokens = input(g, "tokens", DType::I32, {shape.batch, shape.tokens});
  const Expr position = input(g, "position", DType::I32, {shape.batch});
  const bool chosen = shape.tokens > 1 && !shape.all_logits;
  return decoder(c, shape, tokens, position, chosen ? input(g, "row", DType::I32, {shape.batch}) : Expr(), p);
}

namespace {
DecoderShape whole_texts(const Expr& tokens) {
  DecoderShape shape;
  shape.batch = tokens.shape()[0];
  shape.tokens = shape.capacity = tokens.shape()[1];
  return shape;
}
}  // namespace

DecoderHidden decoder_hidden(const DecoderConfig& c, const Expr& tokens, nn::Precision p) {
  const Shape& s = tokens.shape();
  TENON_CHECK(Usage, s.rank() == 2 && s.numel() > 0 && s[1] <= c.positions, "decoder")
      << "expected tokens [batch, 1 to " << c.positions << "], got " << s.str();
  const DecoderShape shape = whole_texts(tokens);
  DecoderHidden out = Network(tokens.graph(), c, shape, p).hidden(tokens);
  out.hidden = nn::with_side_branches(out.hidden, nn::branches_of(c.adapter, out.hidden));
  return out;
}

DecoderHidden decoder_hidden(const DecoderConfig& c, const Expr& tokens, const SharedBeginnings& texts,
                             nn::Precision p) {
  const Shape places{texts.batch * texts.tokens};
  TENON_CHECK(Usage,
              tokens.shape().rank() == 1 && tokens.shape() == texts.place_of.shape() &&
                  tokens.shape() == texts.position.shape(),
              "decoder")
      << "expected tokens " << texts.place_of.shape().str() << " and as many positions, got " << tokens.shape().str()
      << " and " << texts.position.shape().str();
  TENON_CHECK(Usage, places.numel() > 0 && texts.token_at.shape() == places && texts.tokens <= c.positions, "decoder")
      << "expected texts of 1 to " << c.positions << " tokens and a token for each place, got " << texts.tokens
      << " and " << texts.token_at.shape().str();
  DecoderShape shape;
  shape.batch = texts.batch;
  shape.tokens = shape.capacity = texts.tokens;
  DecoderHidden out = Network(tokens.graph(), c, shape, texts, p).hidden(tokens);
  out.hidden = nn::with_side_branches(out.hidden, nn::branches_of(c.adapter, out.hidden));
  return out;
}

Expr decoder_states(const DecoderConfig& c, const Expr& tokens, int64_t layers, nn::Precision p) {
  const Shape& s = tokens.shape();
  TENON_CHECK(Usage, s.rank() == 2 && s.numel() > 0 && layers >= 0 && layers <= c.layers, "decoder")
      << "expected tokens [B,T] and 0.." << c.layers << " layers, got " << s.str() << " and " << layers;
  const DecoderShape shape = whole_texts(tokens);
  return Network(tokens.graph(), c, shape, p).states(tokens, layers);
}

WeightShapes decoder_weights(const DecoderConfig& c) {
  Graph g;
  DecoderShape one;
  one.capacity = 1;
  const Decoder d = decoder(g, c, one, nn::kF32);
  return weights_of(std::array{d.logits});
}

}  // namespace tenon
