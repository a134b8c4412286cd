// Attention, caches and other states of random programs.
#include "tests/planned/layers.h"

#include <cmath>

namespace tenon::planned {

Expr Layers::heads_of(const Expr& x, int64_t heads, int64_t depth) {
  const Expr y = permute(reshape(x, {x.shape()[0], x.shape()[1], heads, depth}), {0, 2, 1, 3});
  const Expr z = chance(0.15) ? cast(y * rsqrt(mean(y * y) + 1e-2), x.dtype()) : y;
  return chance(0.15) && depth % 2 == 0 ? cast(rotated(z), x.dtype()) : z;
}

// Pairs of neighbours rotated, as in interleaved rotary embeddings.
Expr Layers::rotated(const Expr& x) {
  const Shape table = {x.shape().rank() > 1 ? x.shape()[-2] : 1, x.shape()[-1]};
  return x * input(g_, name("cos"), DType::F32, table) + pair_swap(x) * input(g_, name("sin"), DType::F32, table);
}

Expr Layers::index(std::string kind, int64_t n, const Shape& shape) {
  kind += std::to_string(n) + "_";
  return input(g_, kind + name("i"), DType::I32, shape);
}

// How many of the keys there are: at least as many as queries under a causal mask, seldom fewer.
Expr Layers::counted_keys(int64_t batch, int64_t queries, int64_t keys) {
  const Shape shape = chance(0.5) ? Shape{} : Shape{batch};
  if (chance(0.1)) return index_below(keys + 1, shape);
  const Expr before = index_below(keys - std::min(queries, keys) + 1, shape);
  return cast(cast(before, DType::F32) + static_cast<double>(std::min(queries, keys)), DType::I32);
}

Expr Layers::attend(const Expr& x, const Expr& other) {
  const int64_t depth =
      chance(0.15) ? pick<int64_t>({1, 5, 64, 80, 128, 160}) : pick<int64_t>({4, 8, 8, 16, 20, 32, 40});
  const int64_t heads = pick<int64_t>({1, 2, 2, 3, 4, 8});
  const int64_t kv_heads = heads % 2 == 0 && chance(0.3) ? heads / 2 : chance(0.2) ? 1 : heads;
  Expr from = x;
  if (chance(0.3)) from = fresh({x.shape()[0], pick<int64_t>({1, 5, 7, 20, 33, 70, 300}), 12});
  if (other.shape().rank() == 3 && other.shape()[0] == x.shape()[0] && chance(0.5)) from = other;
  const Expr y = chance(0.5) ? norm(x) : x;
  if (chance(0.5) && from == x) from = y;
  const auto project = [&](const Expr& of, int64_t count) {
    const Expr p = linear(of, weight({count * depth, of.shape()[-1]}));
    return heads_of(cast(chance(0.3) ? p + vector(count * depth) : p, act_), count, depth);
  };
  const Expr q = project(y, heads), k = project(from, kv_heads), v = project(from, kv_heads);
  const bool causal = chance(0.4) && k.shape()[2] >= q.shape()[2];
  const Expr keys = chance(0.2) ? counted_keys(x.shape()[0], causal ? q.shape()[2] : 1, k.shape()[2]) : Expr();
  Expr o = attention(q, k, v, 1 / std::sqrt(static_cast<double>(depth)), causal, keys);
  if (chance(0.1)) o = o * sigmoid(attention_lse(o));
  const Expr merged =
      reshape(permute(chance(0.8) ? cast(o, act_) : o, {0, 2, 1, 3}), {x.shape()[0], x.shape()[1], heads * depth});
  if (chance(0.2)) return merged;
  const Expr out = linear(merged, weight({x.shape()[-1], heads * depth}));
  return chance(0.7) ? x + out : out;
}

Expr Layers::updated(const Expr& state, const Expr& index, const Expr& rows) {
  const Expr after = update_rows(state, index, rows);
  states_[state_of(after)->attrs.text] = after;
  return after;
}

Expr Layers::attend_cached(const Expr& x) {
  if (x.shape().rank() != 3) return {};
  const int64_t batch = x.shape()[0], tokens = x.shape()[1];
  const int64_t depth = pick<int64_t>({8, 16, 16, 20, 32, 64, 128}), heads = pick<int64_t>({1, 2, 2, 4, 8});
  const int64_t kv_heads = chance(0.4) ? heads : chance(0.5) ? 1 : std::max<int64_t>(heads / 2, 1);
  const int64_t page = chance(0.4) ? pick<int64_t>({4, 8, 16}) : 0;
  int64_t capacity = tokens + pick<int64_t>({0, 1, 7, 30, 90});
  if (page) capacity = (capacity + page - 1) / page * page;
  const int64_t pages = page ? batch * (capacity / page) + below(3) : 0;
  const Expr position = index_below(capacity - tokens + 1, {batch});
  const Expr first = cast(position, DType::F32);
  const Expr positions = reshape(first, {batch, 1}) + counted(tokens, {1, tokens});
  Expr place = positions + counted(batch, {batch, 1}) * static_cast<double>(capacity), table;
  if (page) {  // a page is a row of the table's, looked up as a sum
    const int64_t n = capacity / page;
    table = places_below(pages, {batch, n});
    const auto length = static_cast<double>(page);
    const Expr at = reshape(positions, {batch, tokens, 1}), of = floor(at * (1 / length));
    const Expr given = cast(broadcast(reshape(table, {batch, 1, n}), {batch, tokens, n}), DType::F32);
    const Expr number = sum(given * equal(broadcast(of, {batch, tokens, n}), counted(n, {1, 1, n})));
    place = reshape(number * length + (at - of * length), {batch, tokens});
  }
  place = cast(place, DType::I32);
  if (page || chance(0.8)) place = materialize(place);
  const Expr a = cast(chance(0.6) ? norm(x) : x, act_);
  const auto project = [&](int64_t count) {
    const Expr p = linear(a, weight({count * depth, x.shape()[-1]}));
    return reshape(cast(chance(0.3) ? p + vector(count * depth) : p, act_), {batch, tokens, count, depth});
  };
  const auto cached = [&](const Expr& rows) {
    const Shape all{page ? pages * page : batch * capacity, kv_heads, depth};
    const Expr after = updated(state(g_, name("cache"), act_, all), place, rows);
    const Expr own = page ? gather(reshape(after, {pages, page, kv_heads, depth}), table) : after;
    return permute(reshape(own, {batch, capacity, kv_heads, depth}), {0, 2, 1, 3});
  };
  const Expr q = permute(chance(0.3) ? cast(rotated(project(heads)), act_) : project(heads), {0, 2, 1, 3});
  const Expr k = cached(project(kv_heads)), v = cached(project(kv_heads));
  const Expr keys = cast(first + static_cast<double>(tokens), DType::I32);
  const Expr o = cast(attention(q, k, v, 1 / std::sqrt(static_cast<double>(depth)), chance(0.8), keys), act_);
  const Expr merged = reshape(permute(o, {0, 2, 1, 3}), {batch, tokens, heads * depth});
  return stored(x + linear(merged, weight({x.shape()[-1], heads * depth})));
}

Expr Layers::remembered(const Expr& x) {
  const Shape& s = x.shape();
  if (s.rank() < 2 || s.rows() > 200) return {};
  const int64_t rows = s.rows(), all = 2 * rows + below(3);
  const DType t = any_type();
  const Expr before = state(g_, name("memory"), t, {all, s[-1]});
  const Expr order = chance(0.5) ? places_below(all, {all}) : chance(0.5) ? flip(iota(g_, all), 0) : iota(g_, all);
  const Expr here = slice(order, 0, 0, rows), there = slice(order, 0, rows, 2 * rows);
  const Expr value = cast(reshape(x, {rows, s[-1]}), t);
  Expr after = updated(before, here, value);
  const Expr once = chance(0.7) ? after : chance(0.5) ? materialize(after) : barrier(after, stage_++);
  // What a plan must compute from rows of a value before it replaces the value.
  const auto of_rows = [&](const Expr& memory, const Expr& at) {
    const Expr e = gather(memory, at) * 1.5;
    return chance(0.5) ? materialize(e) : e;
  };
  if (chance(0.4))
    after = updated(after, there, cast(chance(0.4) ? tanh(value) : of_rows(pick({before, once}), here), t));
  switch (below(4)) {
    case 0:
      return reshape(gather(after, chance(0.5) ? there : here), s);
    case 1:
      return stored(x + reshape(of_rows(pick({before, once, after}), there) + gather(after, here), s));
    case 2:
      return reduced(after * 0.5 + 0.1);
    default:
      return stored(slice(after, 0, 0, rows) * 0.5);
  }
}

Expr Layers::drawn() {
  const int64_t rows = pick<int64_t>({1, 2, 5}), tokens = pick<int64_t>({1, 2, 31, 300});
  const Expr scores = input(g_, name("x"), any_type(), {rows, tokens});
  const Expr rule = input(g_, name("rule"), DType::F32, {rows, 4});
  const Expr draw = sample(scores, rule, index_below(65536, {rows, 4}), index_below(1000, {rows}));
  const Expr token = reshape(cast(slice(draw, 1, 0, 1), DType::I32), {rows});
  const Expr table = param(g_, name("table"), any_type(), {tokens, std::min<int64_t>(width(), 80)});
  return gather(table, token) + (chance(0.5) ? slice(draw, 1, 1, 2) : constant(g_, 0));
}

}  // namespace tenon::planned
