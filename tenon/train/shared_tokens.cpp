#include "tenon/train/shared_tokens.h"

#include <algorithm>
#include <bit>

#include "tenon/expr/ops.h"

namespace tenon::train {
namespace {

// The next of four sizes between powers of two.
int64_t rounded_up(int64_t n) {
  constexpr uint64_t kLeast = 32;
  const uint64_t step = std::max(kLeast, std::bit_floor(static_cast<uint64_t>(n)) / 4);
  return (n + static_cast<int64_t>(step) - 1) / static_cast<int64_t>(step) * static_cast<int64_t>(step);
}

Expr with_none(const Expr& rows) {
  std::vector<int64_t> counts(2 * static_cast<size_t>(rows.shape().rank()), 0);
  counts[1] = 1;
  return pad(rows, std::move(counts));
}

// The rows that each of `sharers` [kMostSharers, n] names, added up; the one behind the last is zeros.
Expr added_up(const Expr& rows, const Expr& sharers) {
  const Expr from = with_none(rows);
  Expr sum;
  for (int64_t i = 0; i < kMostSharers; ++i) {
    const Expr one = gather(from, reshape(slice(sharers, 0, i, i + 1), {sharers.shape()[1]}));
    sum = sum ? sum + one : one;
  }
  return materialize(sum);
}

// Enters `place` as the next that a token stands at.
void share(std::vector<int32_t>& sharers, std::vector<int64_t>& counts, int64_t token, int64_t place) {
  const auto n = std::ssize(counts);
  sharers[static_cast<size_t>(counts[static_cast<size_t>(token)]++ * n + token)] = static_cast<int32_t>(place);
}

}  // namespace

SharedTokens::SharedTokens(const PolicyBatch& batch, int64_t first, int64_t count)
    : batch_(batch), first_(first), count_(count), width_(batch.width(first, count)) {
  const std::vector<int32_t> ids = batch.part(batch.ids, first, count), target = batch.part(batch.target, first, count);
  const int64_t places = count * width_;
  token_at_.assign(static_cast<size_t>(places), 0);
  owner_.assign(static_cast<size_t>(places + 1), -1);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t length = batch.lengths[static_cast<size_t>(first + r)], begin = r * width_;
    int64_t alike = 0, like = 0;  // tokens, and the row that has them too
    for (int64_t q = r;
         q-- > 0 && batch.alike[static_cast<size_t>(first + q)] == batch.alike[static_cast<size_t>(first + r)];) {
      const int64_t both = std::min(length, batch.lengths[static_cast<size_t>(first + q)]);
      const auto at = ids.begin() + begin;
      const int64_t n = std::mismatch(at, at + both, ids.begin() + q * width_).first - at;
      if (n > alike) alike = n, like = q * width_;
    }
    for (int64_t t = 0; t < length; ++t) {
      const auto place = static_cast<size_t>(begin + t);
      token_at_[place] = t < alike ? token_at_[static_cast<size_t>(like + t)] : static_cast<int32_t>(ids_.size());
      if (t < alike) continue;
      owner_[place] = token_at_[place];
      place_of_.push_back(static_cast<int32_t>(place));
      ids_.push_back(ids[place]);
    }
    for (int64_t t = 0; t < length; ++t)
      if (target[static_cast<size_t>(begin + t)] >= 0) {
        source_.push_back(token_at_[static_cast<size_t>(begin + t)]);
        source_place_.push_back(static_cast<int32_t>(begin + t));
      }
  }
  shape_ = {rounded_up(std::ssize(ids_)), rounded_up(std::max<int64_t>(1, std::ssize(source_)))};
  const auto tokens = static_cast<size_t>(shape_.tokens), targets = static_cast<size_t>(shape_.targets);
  sharers_.assign(kMostSharers * tokens, static_cast<int32_t>(places));
  source_sharers_.assign(kMostSharers * tokens, static_cast<int32_t>(shape_.targets));
  std::vector<int64_t> counts(tokens, 0), of_targets(tokens, 0);
  for (int64_t r = 0; r < count; ++r)
    for (int64_t t = 0; t < batch.lengths[static_cast<size_t>(first + r)]; ++t)
      share(sharers_, counts, token_at_[static_cast<size_t>(r * width_ + t)], r * width_ + t);
  for (size_t i = 0; i < source_.size(); ++i) share(source_sharers_, of_targets, source_[i], static_cast<int64_t>(i));
  std::ranges::replace(owner_, -1, static_cast<int32_t>(shape_.tokens));
  ids_.resize(tokens, 0);
  place_of_.resize(tokens, static_cast<int32_t>(places));
  source_.resize(targets, 0);
  source_place_.resize(targets, static_cast<int32_t>(places));
}

void SharedTokens::give(Gradients& to, bool with_reference) const {
  batch_.give(to, first_, count_, with_reference, false);
  const auto set = [&](const char* name, const std::vector<int32_t>& values, const Shape& shape) {
    to.set(name, {DType::I32, shape, values.data()});
  };
  const Shape of_sharers{kMostSharers, shape_.tokens};
  set("tokens", ids_, {shape_.tokens});
  set("token at", token_at_, {count_ * width_});
  set("place of", place_of_, {shape_.tokens});
  set("owner", owner_, {count_ * width_ + 1});
  set("sharers", sharers_, of_sharers);
  set("source", source_, {shape_.targets});
  set("source place", source_place_, {shape_.targets});
  set("source sharers", source_sharers_, of_sharers);
}

void SharedTokens::put(const std::vector<float>& of_targets, std::vector<float>& all) const {
  for (size_t i = 0; i < source_place_.size(); ++i) {
    const int64_t place = source_place_[i];
    if (place == count_ * width_) return;
    all[static_cast<size_t>((first_ + place / width_) * batch_.tokens + place % width_)] = of_targets[i];
  }
}

SharedInputs::SharedInputs(Graph& g, int64_t rows, int64_t width, const SharedShape& shape) : shape_(shape) {
  const auto numbers = [&](const char* name, const Shape& of) { return input(g, name, DType::I32, of); };
  const Shape of_sharers{kMostSharers, shape.tokens};
  tokens_ = numbers("tokens", {shape.tokens});
  texts_ = {rows, width, numbers("token at", {rows * width}), numbers("place of", {shape.tokens})};
  owner_ = numbers("owner", {rows * width + 1});
  sharers_ = numbers("sharers", of_sharers);
  source_ = numbers("source", {shape.targets});
  source_place_ = numbers("source place", {shape.targets});
  source_sharers_ = numbers("source sharers", of_sharers);
}

Expr SharedInputs::of_targets(const Expr& rows) const { return materialize(gather(rows, source_)); }
Expr SharedInputs::from_targets(const Expr& rows) const { return added_up(rows, source_sharers_); }
Expr SharedInputs::at_targets(const Expr& places) const {
  return materialize(gather(with_none(places), source_place_));
}

GradientRule SharedInputs::rule() const {
  return [*this](const Expr& node, const Expr& g) -> std::vector<Expr> {
    if (!node.is<nodes::Gather>()) return {};
    if (node->in[1] == texts_.token_at) return {added_up(g, sharers_), Expr()};
    if (node->in[1] == texts_.place_of) return {materialize(gather(with_none(g), owner_)), Expr()};
    return {};
  };
}

}  // namespace tenon::train
