#include "tenon/pipelines/sampling.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/io/random.h"

namespace tenon {
namespace {

struct Candidate {
  float score;
  int32_t id;
};

// Best first; of equal ones the lower id.
bool better(const Candidate& a, const Candidate& b) { return a.score != b.score ? a.score > b.score : a.id < b.id; }

// Of the k largest and those that equal the last of these.
void keep_top_k(std::vector<Candidate>& all, int64_t k) {
  if (k <= 0 || k >= static_cast<int64_t>(all.size())) return;
  std::nth_element(all.begin(), all.begin() + (k - 1), all.end(), better);
  const float least = all[static_cast<size_t>(k - 1)].score;
  std::erase_if(all, [&](const Candidate& c) { return c.score < least; });
}

double total_of(const std::vector<Candidate>& all, float top) {
  double total = 0;
  for (const Candidate& c : all) total += std::exp(static_cast<double>(c.score) - top);
  return total;
}

// Best first until what is kept reaches p of the whole. A heap gives them in order: few are asked for.
void keep_top_p(std::vector<Candidate>& all, double p, float top) {
  if (p >= 1) return;
  const double whole = total_of(all, top);
  const auto worse = [](const Candidate& a, const Candidate& b) { return better(b, a); };
  std::make_heap(all.begin(), all.end(), worse);
  auto end = all.end();
  double kept = 0;
  do {
    std::pop_heap(all.begin(), end, worse);
    --end;
    kept += std::exp(static_cast<double>(end->score) - top);
  } while (end != all.begin() && kept < p * whole);
  all.erase(all.begin(), end);
}

void keep_min_p(std::vector<Candidate>& all, double p, float top) {
  if (p <= 0) return;
  const double least = top + std::log(p);
  std::erase_if(all, [&](const Candidate& c) { return c.score < least; });
}

// The first candidate, by id, at which the sum of probabilities passes u of the whole.
Candidate drawn(std::vector<Candidate>& all, double u, float top, double whole) {
  std::ranges::sort(all, {}, &Candidate::id);
  double sum = 0;
  for (const Candidate& c : all) {
    sum += std::exp(static_cast<double>(c.score) - top);
    if (sum > u * whole) return c;
  }
  return *std::ranges::min_element(all, better);  // u * whole was rounded up to the last sum
}

}  // namespace

Sampling chosen(Sampling s, const SamplingChoice& choice) {
  const bool likeliest = choice.temperature == 0;
  const auto draws = [&](const char* name, bool given) {
    TENON_CHECK(Usage, !likeliest || !given, name) << "chooses what is drawn from, and temperature 0 draws nothing";
    s.draw = s.draw || given;
  };
  draws("top-k", choice.top_k.has_value());
  draws("top-p", choice.top_p.has_value());
  draws("min-p", choice.min_p.has_value());
  if (choice.temperature) s.draw = !likeliest;
  if (choice.temperature && !likeliest) s.temperature = *choice.temperature;
  s.top_k = choice.top_k.value_or(s.top_k);
  s.top_p = choice.top_p.value_or(s.top_p);
  s.min_p = choice.min_p.value_or(s.min_p);
  s.repetition_penalty = choice.repetition_penalty.value_or(s.repetition_penalty);
  return s;
}

void check_sampling(const Sampling& s) {
  TENON_CHECK(Usage, s.temperature > 0 && std::isfinite(s.temperature), "temperature")
      << s.temperature << ": expected a number above 0";
  TENON_CHECK(Usage, s.top_k >= 0, "top-k") << s.top_k << ": expected 0 (all) or more";
  TENON_CHECK(Usage, s.top_p > 0 && s.top_p <= 1, "top-p") << s.top_p << ": expected a number above 0, up to 1";
  TENON_CHECK(Usage, s.min_p >= 0 && s.min_p <= 1, "min-p") << s.min_p << ": expected a number from 0 to 1";
  TENON_CHECK(Usage, s.repetition_penalty > 0 && std::isfinite(s.repetition_penalty), "repetition-penalty")
      << s.repetition_penalty << ": expected a number above 0";
}

void TokenSampler::saw(int32_t id) {
  if (static_cast<size_t>(id) >= seen_.size()) seen_.resize(static_cast<size_t>(id) + 1);
  if (seen_[static_cast<size_t>(id)]) return;
  seen_[static_cast<size_t>(id)] = true;
  seen_ids_.push_back(id);
}

SampledToken TokenSampler::next(std::span<const float> logits, int64_t position) {
  scores_.assign(logits.begin(), logits.end());
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  if (penalty != 1)
    for (const int32_t id : seen_ids_) {
      if (static_cast<size_t>(id) >= scores_.size()) continue;
      float& s = scores_[static_cast<size_t>(id)];
      s = s < 0 ? s * penalty : s / penalty;
    }
  std::vector<Candidate> all;
  all.reserve(scores_.size());
  for (size_t i = 0; i < scores_.size(); ++i) {
    TENON_CHECK(Numeric, !std::isnan(scores_[i]) && scores_[i] < INFINITY, "logits")
        << "the score of token " << i << " at position " << position << " is " << scores_[i];
    all.push_back(
        {options_.draw ? scores_[i] / static_cast<float>(options_.temperature) : scores_[i], static_cast<int32_t>(i)});
  }
  TENON_CHECK(Numeric, !all.empty(), "logits") << "there are none";
  const Candidate best = *std::ranges::min_element(all, better);
  TENON_CHECK(Numeric, best.score > -INFINITY, "logits") << "no token is possible at position " << position;
  Candidate chosen = best;
  if (options_.draw) {
    keep_top_k(all, options_.top_k);
    keep_top_p(all, options_.top_p, best.score);
    keep_min_p(all, options_.min_p, best.score);
    chosen = drawn(all, philox_uniform(seed_, static_cast<uint64_t>(position)), best.score, total_of(all, best.score));
  }
  return {chosen.id, static_cast<double>(chosen.score) - best.score - std::log(total_of(all, best.score))};
}

}  // namespace tenon
