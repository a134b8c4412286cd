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

/// Error(Usage) for a norm limit or a decay out of range.
void check_update(double clip, double decay);

class Updater {
 public:
  /// `clip`: limit of the gradients' global norm, as in torch.nn.utils.clip_grad_norm_; 0: none. `decay`, used if
  /// parameters are averaged: after step n an average is d average + (1 - d) master, where d is the smaller of `decay`
  /// and n / (9 + n), 0 after the first one, so that early in a run it forgets its beginning (as diffusers' EMAModel).
  Updater(Parameters& parameters, std::unique_ptr<Optimizer> optimizer, double clip, double decay = 0);

  struct Report {
    double norm = 0;   ///< of all gradients together, before clipping
    double scale = 1;  ///< factor applied to them: 1 / runs times that of clipping
  };
  /// One step along the gradients, which are sums over `runs` runs and are averaged here. On return the store has the
  /// new weights. If a gradient is not finite, Error(Numeric) names the first parameter that has one, and nothing has
  /// been written.
  Report step(double lr, int64_t runs = 1);

  /// Steps so far; set when resuming from a checkpoint.
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
