// Options of a GRPO run.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "tenon/nn/low_rank.h"
#include "tenon/nn/policy_loss.h"
#include "tenon/nn/scope.h"
#include "tenon/optim/optimizer.h"
#include "tenon/train/rewards.h"
#include "tenon/train/schedule.h"

namespace tenon::train {

inline constexpr std::array<const char*, 4> kLossNames{"dr_grpo", "grpo", "bnpo", "dapo"};  ///< of nn::PolicyLoss

struct GrpoOptions {
  int64_t prompts = 2, group = 8, epochs = 2;
  int64_t micro_rows = 0;    ///< rows per gradient computation; 0: the device's preference
  int64_t arena_bytes = 0;   ///< most bytes of an update's arena (GradientOptions); 0: no limit
  int64_t max_tokens = 256;  ///< longest completion
  nn::PolicyLoss loss = nn::PolicyLoss::DrGrpo;
  nn::PolicyOptions terms{0.2, 0.2, 0, 0.04};
  ScaleRewards scale = ScaleRewards::None;
  nn::LowRank adapter;          ///< trained instead of the model's weights if its rank is above 0
  bool mask_truncated = false;  ///< completions without an end are not learnt from, but count in their group's mean
  std::vector<Reward> rewards{{}};
  std::string system;  ///< first message of the chat; empty: none
  std::string optimizer = "adamw";
  OptimizerOptions optimizer_options{-1, -1, -1, 0.01};
  Schedule schedule{1e-6, Decay::Constant, 0, 1000, 0};
  double clip = 1;
  double ema = 0;  ///< decay of a moving average of the weights, used for evaluation and the final model; 0: none
  int64_t evaluate_every = 25, evaluate_count = 64;
  int64_t checkpoint_every = 25, keep = 2;
  uint64_t seed = 42;
  bool tensorboard = false;  ///< also write metrics to an event file
  nn::Precision precision = nn::kF32;
};
/// Error(Usage) that names an option out of range.
void check_grpo(const GrpoOptions& o);

}  // namespace tenon::train
