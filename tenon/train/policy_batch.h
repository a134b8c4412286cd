// Completions as a training batch, and statistics of a step.
#pragma once
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/nn/policy_loss.h"
#include "tenon/train/gradients.h"
#include "tenon/train/rollout.h"

namespace tenon::train {

/// Scores of one completion.
struct Judgement {
  double reward = 0;  ///< the weighted sum
  bool right = false;
  std::string text;
};

struct PolicyFacts {
  double kl = 0;                             ///< mean k3 of the tokens
  double clipped_low = 0, clipped_high = 0;  ///< fractions of tokens whose gradient was removed by clipping
};

/// Rows of prompt and completion, shortest first, padded at the end (attention is causal, so padding has no effect).
/// Rows of similar length are adjacent, so that a part of the batch need not be as wide as its longest row; if
/// `sharers` is above 1, so are rows of one prompt.
struct PolicyBatch {
  int64_t rows = 0, tokens = 0;
  std::vector<int64_t> lengths;                   ///< tokens per row; ascending unless rows share a prompt
  std::vector<int64_t> alike;                     ///< equal for rows of one prompt, up to `sharers` of them
  std::vector<int32_t> ids, target;               ///< [rows, tokens]; target -1 where nothing is learnt
  std::vector<float> old, reference, advantages;  ///< [rows, tokens], the same or empty, [rows]

  /// `of_rows`: advantages. `truncated_out`: completions without an end get no targets. The number of tokens is a
  /// multiple of `multiple`. `sharers`: most rows with the same prompt, adjacent in `prompts`, that are kept together.
  /// Error(Usage) unless each prompt has tokens, a completion with as many log-probabilities as tokens, and an
  /// advantage.
  PolicyBatch(const std::vector<std::vector<int32_t>>& prompts, const std::vector<Completion>& made,
              const std::vector<double>& of_rows, bool truncated_out, int64_t multiple, int64_t sharers = 1);

  /// Width that rows first..first+count-1 need on their own: a multiple of `multiple`.
  int64_t width(int64_t first, int64_t count) const;
  /// Sets the inputs of a policy loss over width(first, count) to these rows; give_targets: all but "tokens".
  void give(Gradients& to, int64_t first, int64_t count, bool with_reference) const;
  void give_targets(Gradients& to, int64_t first, int64_t count, bool with_reference) const;
  /// part: rows of an [rows, tokens] array, cut to width(first, count), concatenated; and the inverse, for results.
  template <class T>
  std::vector<T> part(const std::vector<T>& all, int64_t first, int64_t count) const;
  template <class T>
  void put(const std::vector<T>& part, int64_t first, int64_t count, std::vector<T>& all) const;
  int64_t counted() const;
  /// The largest |exp(logp - old) - 1| over the targets; infinite if one is NaN.
  double largest_ratio_error(const std::vector<float>& logp) const;
  PolicyFacts facts(const std::vector<float>& logp, const nn::PolicyOptions& o) const;

 private:
  int64_t multiple_;
};

template <class T>
std::vector<T> PolicyBatch::part(const std::vector<T>& all, int64_t first, int64_t count) const {
  std::vector<T> out;
  for (int64_t r = first; r < first + count; ++r)
    out.insert(out.end(), all.begin() + r * tokens, all.begin() + r * tokens + width(first, count));
  return out;
}

template <class T>
void PolicyBatch::put(const std::vector<T>& part, int64_t first, int64_t count, std::vector<T>& all) const {
  const int64_t wide = width(first, count);
  for (int64_t r = 0; r < count; ++r) std::copy_n(part.begin() + r * wide, wide, all.begin() + (first + r) * tokens);
}

/// Adds metrics of a step: reward and its spread, groups without spread, lengths, and how completions ended.
/// Error(Usage) unless there is a judgement for each completion, in whole groups.
void batch_metrics(const std::vector<Judgement>& judged, const std::vector<Completion>& made, int64_t group,
                   nlohmann::ordered_json& metrics);

}  // namespace tenon::train
