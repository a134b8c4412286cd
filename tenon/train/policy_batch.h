// Completions as a batch for training, and what a step says of them.
#pragma once
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

/// Rows of prompt and completion, filled up behind their ends: attention is causal, so that what stands there changes
/// nothing.
struct PolicyBatch {
  int64_t rows = 0, tokens = 0;
  std::vector<int32_t> ids, target;               ///< [rows, tokens]; target -1 where nothing is learnt
  std::vector<float> old, reference, advantages;  ///< [rows, tokens], the same or empty, [rows]

  /// `truncated_out`: completions without an end have no target. Tokens are a multiple of `multiple`.
  PolicyBatch(const std::vector<std::vector<int32_t>>& prompts, const std::vector<Completion>& made,
              const std::vector<double>& of_rows, bool truncated_out, int64_t multiple);

  /// Sets the inputs of a policy loss to rows first..first+count-1.
  void give(Gradients& to, int64_t first, int64_t count, bool with_reference) const;
  int64_t counted() const;
  /// The largest |exp(logp - old) - 1| of the targets; infinite if one is not a number.
  double largest_ratio_error(const std::vector<float>& logp) const;
  PolicyFacts facts(const std::vector<float>& logp, const nn::PolicyOptions& o) const;
};

/// Reward, its spread, groups without any, lengths and ends, as metrics of a step.
void batch_metrics(const std::vector<Judgement>& judged, const std::vector<Completion>& made, int64_t group,
                   nlohmann::ordered_json& metrics);

}  // namespace tenon::train
