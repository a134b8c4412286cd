#include "tenon/models/decode_step.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/nn/loss.h"
#include "tenon/nn/penalty.h"

namespace tenon {
namespace {

class Step {
 public:
  Step(Graph& g, const DecoderConfig& c, const DecodeStepShape& shape, nn::Precision p)
      : g_(g), c_(c), shape_(shape), rows_(shape.rows) {
    const int64_t most = max_decode_rows(c, shape.capacity);
    TENON_CHECK(Usage, rows_ > 0 && rows_ <= most, "texts")
        << "expected 1 to " << most << " at once with caches of " << shape.capacity << " tokens, got " << rows_;
    const Expr token = state(g_, "token", DType::I32, {rows_}), position = state(g_, "position", DType::I32, {rows_});
    DecoderShape network;
    network.batch = rows_;
    network.capacity = shape.capacity;
    network.page = shape.page;
    network.pages = shape.pages;
    places_ = network.places();
    Decoder d = decoder(c, network, reshape(token, {rows_, 1}), position, {}, p);
    out_ = std::move(d.states);
    const Expr logits = reshape(d.logits, {rows_, c.vocabulary}), scores = penalised(logits, token);
    const Expr counter = cast(number(position) + number(given("draws")) + 1.0, DType::I32);
    const Expr drawn =
        sample(scores, input(g_, "rule", DType::F32, {rows_, 4}), input(g_, "seed", DType::I32, {rows_, 4}), counter);
    // Everything is in columns, like the result of sample, so that it fits into one launch; the next launch writes the
    // states that this one reads. A row without a valid token does not advance.
    const Expr made = slice(drawn, -1, 0, 1), known = slice(drawn, -1, 1, 2);
    const Expr going = state(g_, "going", DType::I32, {rows_}), goes = equal(known, known) * column(going);
    const Expr moved = materialize(column(position) + goes);
    update(token, where(goes, made, column(token)));
    update(position, moved);
    update(going, goes * (1.0 - ended(made, moved)));
    append("text", row(d.place), cast(made, DType::I32));
    append("log_probability", row(d.place), shape.of_network ? of_network(logits, made) : known);
  }

  std::vector<std::pair<std::string, Expr>> states() { return std::move(out_); }

 private:
  static Expr number(const Expr& x) { return cast(x, DType::F32); }
  Expr column(const Expr& x) const { return number(reshape(x, {rows_, 1})); }
  Expr row(const Expr& x) const { return reshape(x, {rows_}); }
  Expr given(const char* name) const { return input(g_, name, DType::I32, {rows_}); }
  Expr first_of_rows(int64_t length) const { return column(iota(g_, rows_)) * static_cast<double>(length); }

  Expr penalised(const Expr& scores, const Expr& token) {
    if (!shape_.penalises) return scores;
    const int64_t words = c_.vocabulary;
    const Expr place = cast(row(column(token) + first_of_rows(words)), DType::I32), one = constant(g_, 1);
    const Expr seen =
        update_rows(state(g_, "seen", DType::U8, {rows_ * words}), place, cast(broadcast(one, {rows_}), DType::U8));
    out_.emplace_back("seen", seen);
    const Expr penalty = reshape(input(g_, "penalty", DType::F32, {rows_}), {rows_, 1});
    return nn::penalised(scores, number(reshape(seen, {rows_, words})), penalty);
  }

  Expr of_network(const Expr& logits, const Expr& made) const {
    const Expr place = cast(row(made + first_of_rows(c_.vocabulary)), DType::I32);
    const Expr chosen = gather(reshape(logits, {rows_ * c_.vocabulary}), materialize(place));
    return column(chosen) - nn::log_sum_exp(logits);
  }

  // 1 after a stop token or at the limit.
  Expr ended(const Expr& made, const Expr& moved) const {
    Expr ends = 1.0 - less(moved, column(given("limit")));
    if (shape_.stops == 0) return ends;
    const Expr stops = input(g_, "stops", DType::I32, {rows_, shape_.stops});
    for (int64_t i = 0; i < shape_.stops; ++i) ends = max(ends, equal(made, number(slice(stops, -1, i, i + 1))));
    return ends;
  }

  void update(const Expr& state, const Expr& value) {
    out_.emplace_back(state->attrs.text, update_rows(state, iota(g_, rows_), row(cast(value, DType::I32))));
  }
  void append(const char* name, const Expr& at, const Expr& value) {
    const Expr all = state(g_, name, value.dtype(), {places_});
    out_.emplace_back(name, update_rows(all, at, row(value)));
  }

  Graph& g_;
  const DecoderConfig& c_;
  const DecodeStepShape& shape_;
  int64_t rows_, places_ = 0;  // of the caches
  std::vector<std::pair<std::string, Expr>> out_;
};

}  // namespace

int64_t max_decode_rows(const DecoderConfig& config, int64_t capacity) {
  constexpr int64_t kMaxPlaces = int64_t{1} << 24;  // integers that f32 represents exactly
  return kMaxPlaces / std::max(capacity, config.vocabulary);
}

std::vector<std::pair<std::string, Expr>> decode_step(Graph& g, const DecoderConfig& c, const DecodeStepShape& shape,
                                                      nn::Precision p) {
  return Step(g, c, shape, p).states();
}

}  // namespace tenon
