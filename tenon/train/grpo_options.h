// What a run of GRPO is asked for.
#pragma once
#include <string>
#include <vector>

#include "tenon/nn/low_rank.h"
#include "tenon/nn/policy_loss.h"
#include "tenon/nn/scope.h"
#include "tenon/optim/optimizer.h"
#include "tenon/train/rewards.h"
#include "tenon/train/schedule.h"

namespace tenon::train {

struct GrpoOptions {
  int64_t prompts = 2, group = 8, epochs = 2;
  int64_t micro_rows = 0;     ///< rows that the gradient is computed of at a time; 0: as the device likes
  int64_t arena_bytes = 0;    ///< most of an update's values (GradientOptions); 0: no limit
  int64_t most_tokens = 256;  ///< of a completion
  nn::PolicyLoss loss = nn::PolicyLoss::DrGrpo;
  nn::PolicyOptions terms{0.2, 0.2, 0, 0.04};
  ScaleRewards scale = ScaleRewards::None;
  nn::LowRank adapter;          ///< trained in the place of the model's weights, where its rank is above 0
  bool mask_truncated = false;  ///< completions without an end are not learnt from; they count in their group's mean
  std::vector<Reward> rewards{{}};
  std::string system;  ///< the chat's first message; empty: none
  std::string optimizer = "adamw";
  OptimizerOptions optimizer_options{-1, -1, -1, 0.01};
  Schedule schedule{1e-6, Decay::Constant, 0, 1000, 0};
  double clip = 1;
  double ema = 0;  ///< decay of a moving average of the weights, which is evaluated and written at the end; 0: none
  int64_t evaluate_every = 25, evaluate_count = 64;
  int64_t checkpoint_every = 25, keep = 2;
  uint64_t seed = 42;
  bool tensorboard = false;  ///< metrics as an event file too
  nn::Precision precision = nn::kF32;
};
/// Error(Usage) that names what is out of its range.
void check_grpo(const GrpoOptions& o);

}  // namespace tenon::train
