// Samplers: how a sample moves from noise to picture, given the model's output at each call.
//
// A sampler is one file in this folder that registers itself under a name; there is no list to edit. Settings and their
// defaults have the meaning of diffusers' scheduler_config.json, class by class. The sample stays in f32; updates are
// computed in f64. A step depends only on the model output, the sample and the outputs since set_steps.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/pipelines/samplers/sampler_options.h"
#include "tenon/pipelines/samplers/settings.h"

namespace tenon {

/// Fills the span with the next standard normal numbers of the caller's stream (in a batch: of each image's stream).
using NoiseSource = std::function<void(std::span<float>)>;

/// The mixture x = alpha * clean + sigma * noise.
struct NoiseLevel {
  double alpha = 1;
  double sigma = 0;
};

/// One sampling method over one noise schedule. Usage: set_steps, then for each call i of timesteps():
/// scale_model_input on a copy of the sample, run the model, step. Calls are numbered from 0 and made in order.
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// Lays out `steps` steps and clears all history. `strength` < 1 (image to image) keeps only the last kept_steps of
  /// them. Throws Error(Usage) for steps outside 1..train steps, a strength outside (0, 1], a strength that leaves no
  /// step, and a spacing that cannot hold that many steps.
  void set_steps(int steps, double strength = 1.0);

  /// The timestep of every model call in order, possibly fractional. One per step; PNDM makes one extra call.
  std::span<const double> timesteps() const;
  int calls() const { return static_cast<int>(timesteps().size()); }

  /// Factor that turns standard normal noise into the initial sample of text to image.
  virtual double init_noise_sigma() const { return 1; }

  /// Scales a copy of the sample into the model's input for this call, in place.
  virtual void scale_model_input(std::span<float> x, int call) const;

  /// Advances `sample` past this call. `output` is the guided model output. Samplers that add noise (needs_noise())
  /// draw from `noise` once per call, the last included, as diffusers does. Throws Error(Internal) for mismatched sizes
  /// or a call out of order.
  void step(std::span<const float> output, int call, std::span<float> sample, const NoiseSource& noise = {});

  /// Whether step draws noise.
  virtual bool needs_noise() const { return false; }

  /// The mixture of clean and noise in the sample before this call: image to image and inpainting noise a clean latent
  /// to it.
  NoiseLevel noise_level(int call) const;
  /// sample = alpha * sample + sigma * noise with noise_level(call), in place.
  void add_noise(std::span<float> sample, std::span<const float> noise, int call) const;

 protected:
  /// Lays out all steps: returns the timesteps of every call, ignoring strength, and resets all history.
  virtual std::vector<double> lay_out(int steps) = 0;
  /// One update. `index` counts from the first timestep of lay_out, `call` from the first call made.
  virtual void advance(std::span<const float> output, int index, int call, std::span<float> sample,
                       const NoiseSource& noise) = 0;
  virtual NoiseLevel level(int index) const = 0;
  /// The largest number of steps that set_steps accepts: the number of training timesteps.
  virtual int max_steps() const = 0;
  /// Number of the `steps` that are made at a strength in (0, 1]: trunc(steps * strength), unless the method counts
  /// otherwise.
  virtual int kept_steps(int steps, double strength) const;
  /// False for a method that cannot start in the middle of its schedule.
  virtual bool can_start_late() const { return true; }

  double timestep(int index) const { return all_timesteps_[static_cast<size_t>(index)]; }

 private:
  std::vector<double> all_timesteps_;
  size_t first_ = 0;  // index of call 0
  int next_call_ = 0;
};

/// A sampler with every choice made.
struct SamplerChoice {
  std::string name;        ///< the main name
  SamplerOptions options;  ///< options that the sampler has are set, others unset
};

/// Resolves a name and options against a config. Names are those of stable-diffusion.cpp, diffusers and A1111 ("ddim",
/// "plms", "euler_a", "DPM++ 2M Karras", "EulerDiscreteScheduler"), ignoring case, blanks, '_' and '-'. An empty name
/// means the config's `_class_name`. Throws Error(Usage) for an unknown name, an option that the sampler does not have
/// or that contradicts its name, and a sampler that cannot do flow matching with a flow-matching config; Error(Model)
/// for a config that names no known class.
SamplerChoice choose_sampler(std::string_view name, const Settings& config, const SamplerOptions& options = {});

/// Builds the sampler that choose_sampler chooses; also Error(Model) for a config with unsupported settings.
std::unique_ptr<Sampler> make_sampler(std::string_view name, const Settings& config,
                                      const SamplerOptions& options = {});

/// Whether a name, as choose_sampler takes it, means the sampler that the config names. Error(Usage) for an unknown
/// name.
bool is_configs_sampler(std::string_view name, const Settings& config);

/// Whether the config is of a model trained on straight paths from noise to picture, x = (1 - sigma) clean + sigma
/// noise, whose output is the velocity, noise - clean.
bool is_flow_matching(const Settings& config);

/// The main names of all samplers, sorted.
std::vector<std::string> sampler_names();

/// AUTOMATIC1111's name for a sampler ("DPM++ 2M" for "dpm++2m"); the name itself if unknown.
std::string a1111_sampler_name(std::string_view name);

/// The settings published with Stable Diffusion 1.5 (PNDM), for checkpoints without a scheduler_config.json.
nlohmann::json sd15_scheduler_config();

}  // namespace tenon
