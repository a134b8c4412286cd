// The noise levels of flow matching, shared by its samplers: straight paths x = (1 - sigma) clean + sigma noise.
#pragma once
#include <vector>

#include "tenon/pipelines/samplers/sampler.h"

namespace tenon {

/// Base of the samplers on diffusers' FlowMatchEulerDiscreteScheduler, with sigmas 1, 1 - 1/n, .. 1/n before the shift,
/// as the pipelines of flow-matching models set them: n steps are n calls, and the last ends at 0. Model outputs are
/// velocities, noise - clean.
class FlowSampler : public Sampler {
 public:
  /// SamplerOptions::flow_shift overrides the config's shift. Error(Model) for what is not implemented.
  FlowSampler(const Settings& settings, const SamplerOptions& options);

 protected:
  std::vector<double> lay_out(int steps) override;
  NoiseLevel level(int index) const override { return {1 - sigma(index), sigma(index)}; }
  int max_steps() const override { return train_steps_; }
  /// diffusers' flow-matching pipelines round the number of skipped steps, not the number of steps made.
  int kept_steps(int steps, double strength) const override;

  /// Sigma before step `index`; index = steps is the end, 0.
  double sigma(int index) const { return sigmas_[static_cast<size_t>(index)]; }
  int steps() const { return static_cast<int>(sigmas_.size()) - 1; }

 private:
  int train_steps_;
  double shift_;
  std::vector<double> sigmas_;
};

}  // namespace tenon
