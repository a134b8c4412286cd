// The second half of a training step: from gradients to new weights.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tenon/optim/list_update.h"
#include "tenon/optim/optimizer.h"
#include "tenon/runtime/executable.h"
#include "tenon/train/parameters.h"

namespace tenon::train {

/// Error(Usage) for a limit of the norm or a decay that is out of its range.
void check_update(double clip, double decay);

class Updater {
 public:
  /// `clip`: most of the gradients' global norm, as torch.nn.utils.clip_grad_norm_; 0: no limit. `decay`, read where
  /// parameters are averaged: behind step n an average is d average + (1 - d) master with d the lesser of `decay` and
  /// (1 + n) / (10 + n), so that it forgets its beginning early in a run (as diffusers' EMAModel).
  Updater(Parameters& parameters, std::unique_ptr<Optimizer> optimizer, double clip, double decay = 0);

  struct Report {
    double norm = 0;   ///< of all gradients together, before clipping
    double scale = 1;  ///< what they were multiplied by: 1 / runs, and what clipping left
  };
  /// One step along the gradients, which are sums of `runs` runs: their mean is taken. The store has the new weights
  /// when it returns. Error(Numeric) for gradients that are no numbers, which names the first parameter that has one;
  /// then nothing has been written.
  Report step(double lr, int64_t runs = 1);

  /// Steps so far; a checkpoint sets it.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  const Optimizer& optimizer() const { return *optimizer_; }

 private:
  double norm();
  void average();
  std::string first_not_finite() const;

  Parameters& parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  double clip_, decay_;
  ListUpdate average_;
  int64_t steps_ = 0;
  std::shared_ptr<void> sum_;
  std::unique_ptr<Executable> norm_;
  std::vector<void*> read_;  // the gradients that it reads
};

}  // namespace tenon::train
