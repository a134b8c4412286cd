// Completions as a batch for training, and what a step says of them.
#pragma once
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/nn/policy_loss.h"
#include "tenon/train/gradients.h"
#include "tenon/train/rollout.h"

namespace tenon::train {

/// What was made of one completion.
struct Judgement {
  double reward = 0;  ///< the weighted sum
  bool right = false;
  std::string text;
};

struct PolicyFacts {
  double kl = 0;                             ///< mean k3 of the tokens
  double clipped_low = 0, clipped_high = 0;  ///< shares of tokens whose gradient clipping took
};

/// Rows of prompt and completion, the shortest first, filled up behind their ends: attention is causal, so that what
/// stands there changes nothing. Rows of like length lie together, so that a part of the batch need not be as wide as
/// its longest row; so do rows of one prompt, if `sharers` is above 1.
struct PolicyBatch {
  int64_t rows = 0, tokens = 0;
  std::vector<int64_t> lengths;                   ///< tokens of each row, ascending where no rows share a prompt
  std::vector<int64_t> alike;                     ///< equal for rows of one prompt, up to `sharers` of them
  std::vector<int32_t> ids, target;               ///< [rows, tokens]; target -1 where nothing is learnt
  std::vector<float> old, reference, advantages;  ///< [rows, tokens], the same or empty, [rows]

  /// `of_rows`: advantages. `truncated_out`: completions without an end have no target. Tokens are a multiple of
  /// `multiple`. `sharers`: rows of equal prompts, one behind the other, that are kept together.
  PolicyBatch(const std::vector<std::vector<int32_t>>& prompts, const std::vector<Completion>& made,
              const std::vector<double>& of_rows, bool truncated_out, int64_t multiple, int64_t sharers = 1);

  /// How wide rows first..first+count-1 are alone: a multiple of `multiple`.
  int64_t width(int64_t first, int64_t count) const;
  /// Sets the inputs of a policy loss over rows of width(first, count) to these; "tokens" too, if it is asked to.
  void give(Gradients& to, int64_t first, int64_t count, bool with_reference, bool with_tokens = true) const;
  /// Rows of width(first, count) of an [rows, tokens], one after the other; and what comes of these, back into one.
  template <class T>
  std::vector<T> part(const std::vector<T>& all, int64_t first, int64_t count) const;
  template <class T>
  void put(const std::vector<T>& part, int64_t first, int64_t count, std::vector<T>& all) const;
  int64_t counted() const;
  /// The largest |exp(logp - old) - 1| of the targets; infinite if one is not a number.
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

/// Reward, its spread, groups without any, lengths and ends, as metrics of a step.
void batch_metrics(const std::vector<Judgement>& judged, const std::vector<Completion>& made, int64_t group,
                   nlohmann::ordered_json& metrics);

}  // namespace tenon::train
