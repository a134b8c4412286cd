#include "tenon/pipelines/sampling.h"

#include <cmath>

#include "tenon/core/error.h"

namespace tenon {
Sampling chosen(Sampling s, const SamplingChoice& choice) {
  const bool likeliest = choice.temperature == 0;
  const auto draws = [&](const char* name, bool given) {
    TENON_CHECK(Usage, !likeliest || !given, name)
        << "cannot be combined with temperature 0, which always takes the most likely token";
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
  TENON_CHECK(Usage, s.temperature >= kLeastDivisor && std::isfinite(s.temperature), "temperature")
      << s.temperature << ": expected 0 (greedy), or " << kLeastDivisor << " or more";
  TENON_CHECK(Usage, s.top_k >= 0, "top-k") << s.top_k << ": expected 0 (all) or more";
  TENON_CHECK(Usage, s.top_p > 0 && s.top_p <= 1, "top-p") << s.top_p << ": expected a number above 0, up to 1";
  TENON_CHECK(Usage, s.min_p >= 0 && s.min_p <= 1, "min-p") << s.min_p << ": expected a number from 0 to 1";
  TENON_CHECK(Usage, s.repetition_penalty >= kLeastDivisor && std::isfinite(s.repetition_penalty), "repetition-penalty")
      << s.repetition_penalty << ": expected " << kLeastDivisor << " or more";
}

}  // namespace tenon
