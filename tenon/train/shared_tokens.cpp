#include "tenon/train/shared_tokens.h"

#include <algorithm>
#include <bit>

#include "tenon/expr/ops.h"

namespace tenon::train {
namespace {

// Rounds up to one of four sizes per power of two, a multiple of `least`.
int64_t capacity_for(int64_t n, int64_t least) {
  const int64_t step = std::max(least, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)) / 4));
  return (n + step - 1) / step * step;
}

Expr with_none(const Expr& rows) {
  std::vector<int64_t> counts(2 * static_cast<size_t>(rows.shape().rank()), 0);
  counts[1] = 1;
  return pad(rows, std::move(counts));
}

// Sums the rows that each column of `sharers` [kMaxSharers, n] names; the index after the last row means zeros.
Expr added_up(const Expr& rows, const Expr& sharers) {
  const Expr from = with_none(rows);
  Expr sum;
  for (int64_t i = 0; i < kMaxSharers; ++i) {
    const Expr one = gather(from, reshape(slice(sharers, 0, i, i + 1), {sharers.shape()[1]}));
    sum = sum ? sum + one : one;
  }
  return materialize(sum);
}

// For each of `tokens` numbers the indices i at which it is in `numbers`, [kMaxSharers, tokens], padded with `none`.
std::vector<int32_t> places_of(const std::vector<int32_t>& numbers, int64_t tokens, int64_t none) {
  std::vector<int32_t> out(static_cast<size_t>(kMaxSharers * tokens), static_cast<int32_t>(none));
  std::vector<int64_t> counts(static_cast<size_t>(tokens), 0);
  for (size_t i = 0; i < numbers.size(); ++i)
    if (const int64_t token = numbers[i]; token >= 0)
      out[static_cast<size_t>(counts[static_cast<size_t>(token)]++ * tokens + token)] = static_cast<int32_t>(i);
  return out;
}

}  // namespace

SharedTokens::SharedTokens(const PolicyBatch& batch, int64_t first, int64_t count)
    : batch_(batch), first_(first), count_(count), width_(batch.width(first, count)) {
  const std::vector<int32_t> numbers = number_tokens(batch.part(batch.ids, first, count));
  shape_.tokens = capacity_for(std::ssize(ids_), 64);
  place(whole_texts(numbers), numbers);
  find_targets(numbers);
  ids_.resize(static_cast<size_t>(shape_.tokens), 0);
  position_.resize(static_cast<size_t>(shape_.tokens), 0);
}

std::vector<int32_t> SharedTokens::number_tokens(const std::vector<int32_t>& ids) {
  std::vector<int32_t> numbers(ids.size(), -1);
  for (int64_t r = 0; r < count_; ++r) {
    const auto row = ids.begin() + r * width_;
    int64_t alike = 0, like = 0;  // number of common leading tokens, and an earlier row that has them
    for (int64_t q = r; q-- > 0 && share_prompt(q, r);) {
      const auto end = row + std::min(length(q), length(r));
      if (const int64_t n = std::mismatch(row, end, ids.begin() + q * width_).first - row; n > alike)
        alike = n, like = q;
    }
    for (int64_t t = 0; t < length(r); ++t) {
      const bool known = t < alike;
      numbers[static_cast<size_t>(r * width_ + t)] =
          known ? numbers[static_cast<size_t>(like * width_ + t)] : static_cast<int32_t>(ids_.size());
      if (known) continue;
      ids_.push_back(row[t]);
      position_.push_back(static_cast<int32_t>(t));
    }
  }
  return numbers;
}

std::vector<int64_t> SharedTokens::whole_texts(const std::vector<int32_t>& numbers) const {
  // A row's last token belongs to a row that continues after it; else to the first row that ends there.
  std::vector<bool> goes_on(ids_.size(), false), seen(ids_.size(), false);
  const auto at = [&](int64_t row, int64_t t) {
    return static_cast<size_t>(numbers[static_cast<size_t>(row * width_ + t)]);
  };
  for (int64_t r = 0; r < count_; ++r)
    for (int64_t t = 0; t + 1 < length(r); ++t) goes_on[at(r, t)] = true;
  std::vector<int64_t> out;
  for (int64_t r = 0; r < count_; ++r) {
    const size_t last = at(r, length(r) - 1);
    if (!goes_on[last] && !seen[last]) out.push_back(r);
    seen[last] = true;
  }
  return out;
}

void SharedTokens::place(const std::vector<int64_t>& texts, const std::vector<int32_t>& numbers) {
  shape_.texts = capacity_for(std::ssize(texts), 8);
  const int64_t places = shape_.texts * width_;
  for (const int64_t r : texts)
    token_at_.insert(token_at_.end(), numbers.begin() + r * width_, numbers.begin() + (r + 1) * width_);
  token_at_.resize(static_cast<size_t>(places), -1);
  sharers_ = places_of(token_at_, shape_.tokens, places);
  place_of_.assign(sharers_.begin(), sharers_.begin() + shape_.tokens);
  owner_.assign(static_cast<size_t>(places + 1), static_cast<int32_t>(shape_.tokens));
  for (size_t n = 0; n < ids_.size(); ++n) owner_[static_cast<size_t>(place_of_[n])] = static_cast<int32_t>(n);
  std::ranges::replace(token_at_, -1, 0);
}

void SharedTokens::find_targets(const std::vector<int32_t>& numbers) {
  const std::vector<int32_t> target = batch_.part(batch_.target, first_, count_);
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] < 0) continue;
    source_.push_back(numbers[i]);
    source_place_.push_back(static_cast<int32_t>(i));
  }
  shape_.targets = capacity_for(std::max<int64_t>(1, std::ssize(source_)), 32);
  source_sharers_ = places_of(source_, shape_.tokens, shape_.targets);
  source_.resize(static_cast<size_t>(shape_.targets), 0);
  source_place_.resize(static_cast<size_t>(shape_.targets), static_cast<int32_t>(count_ * width_));
}

void SharedTokens::give(Gradients& to, bool with_reference) const {
  batch_.give_targets(to, first_, count_, with_reference);
  const auto set = [&](const char* name, const std::vector<int32_t>& values, const Shape& shape) {
    to.set(name, {DType::I32, shape, values.data()});
  };
  const Shape of_sharers{kMaxSharers, shape_.tokens};
  set("tokens", ids_, {shape_.tokens});
  set("position", position_, {shape_.tokens});
  set("token at", token_at_, {shape_.texts * width_});
  set("place of", place_of_, {shape_.tokens});
  set("owner", owner_, {shape_.texts * width_ + 1});
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

SharedInputs::SharedInputs(Graph& g, int64_t width, const SharedShape& shape) {
  const auto numbers = [&](const char* name, const Shape& of) { return input(g, name, DType::I32, of); };
  const Shape of_tokens{shape.tokens}, of_sharers{kMaxSharers, shape.tokens};
  const int64_t places = shape.texts * width;
  tokens_ = numbers("tokens", of_tokens);
  texts_ = {shape.texts, width, numbers("token at", {places}), numbers("place of", of_tokens),
            numbers("position", of_tokens)};
  owner_ = numbers("owner", {places + 1});
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
