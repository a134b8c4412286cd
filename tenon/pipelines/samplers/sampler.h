// Samplers: how a sample moves from noise to picture, given what the model says at each call.
//
// A sampler is one file in this folder that registers itself under a name; there is no list to edit. Meaning of the
// settings and their defaults follow the scheduler_config.json of diffusers, class by class. The sample stays in f32,
// updates are computed in f64. What a step does depends on the model output, the sample and the outputs seen since
// set_steps, and on nothing else.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/pipelines/samplers/settings.h"

namespace tenon {

/// Fills the span with the next standard normal numbers of the caller's stream (for a batch: of each image's stream).
using NoiseSource = std::function<void(std::span<float>)>;

/// The mixture x = alpha * clean + sigma * noise.
struct NoiseLevel {
  double alpha = 1;
  double sigma = 0;
};

/// One sampling method over one noise schedule. Use: set_steps, then for call i of timesteps(): scale_model_input on a
/// copy of the sample, run the model, step. Calls are numbered from 0 and made in order.
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// Lays out `steps` steps and forgets all history. `strength` < 1 (image-to-image) keeps only the last of them, which
  /// kept_steps counts. Throws Error(Usage) for steps outside 1..train steps, for a strength outside
  /// (0, 1], for a strength that leaves no step, and where the spacing cannot hold that many steps.
  void set_steps(int steps, double strength = 1.0);

  /// The timestep of every model call, first call first; may be fractional. One a step; PNDM makes one call more.
  std::span<const double> timesteps() const;
  int calls() const { return static_cast<int>(timesteps().size()); }

  /// What standard normal noise is multiplied with to make the first sample of text-to-image.
  virtual double init_noise_sigma() const { return 1; }

  /// Turns a copy of the sample into the model's input of this call, in place.
  virtual void scale_model_input(std::span<float> x, int call) const;

  /// Moves `sample` past this call. `output` is the guided model output. `noise` is drawn from once a call by samplers
  /// that add noise (needs_noise()), the last call included, as diffusers does. Throws Error(Internal) for sizes that
  /// differ or a call out of order.
  void step(std::span<const float> output, int call, std::span<float> sample, const NoiseSource& noise = {});

  /// True if step draws noise.
  virtual bool needs_noise() const { return false; }

  /// The mixture that the sample has before this call: how image-to-image and inpainting noise a clean latent.
  NoiseLevel noise_level(int call) const;
  /// sample = alpha * sample + sigma * noise with noise_level(call), in place.
  void add_noise(std::span<float> sample, std::span<const float> noise, int call) const;

 protected:
  /// Lays out all steps: returns the timesteps of every call without regard to strength, and resets all history.
  virtual std::vector<double> lay_out(int steps) = 0;
  /// One update. `index` counts from the first timestep of lay_out, `call` from the first call that is made.
  virtual void advance(std::span<const float> output, int index, int call, std::span<float> sample,
                       const NoiseSource& noise) = 0;
  virtual NoiseLevel level(int index) const = 0;
  /// The largest number of steps that set_steps lets through: the number of training timesteps.
  virtual int max_steps() const = 0;
  /// Steps that are made of `steps` at a strength in (0, 1]: trunc(steps * strength), unless the method counts
  /// otherwise.
  virtual int kept_steps(int steps, double strength) const;
  /// False for a method that cannot begin in the middle of its schedule.
  virtual bool can_start_late() const { return true; }

  double timestep(int index) const { return all_timesteps_[static_cast<size_t>(index)]; }

 private:
  std::vector<double> all_timesteps_;
  size_t first_ = 0;  // index of call 0
  int next_call_ = 0;
};

/// Choices that scheduler_config.json does not hold.
struct SamplerOptions {
  std::optional<double> eta;              ///< share of fresh noise, 0..1: DDIM (default 0), Euler ancestral (default 1)
  std::optional<bool> karras;             ///< Karras noise levels; unset: use_karras_sigmas of the config
  std::optional<double> flow_shift = {};  ///< of the noise levels in flow matching, above 0; unset: the config's
};

/// A sampler with every choice made.
struct SamplerChoice {
  std::string name;        ///< the main name
  SamplerOptions options;  ///< what the sampler has is set, what it has not is unset
};

/// What a name and options mean with this config. Names are those of stable-diffusion.cpp, diffusers and A1111 ("ddim",
/// "plms", "euler_a", "DPM++ 2M Karras", "EulerDiscreteScheduler"); case, blanks, '_' and '-' do not count. An empty
/// name means the config's `_class_name`. Throws Error(Usage) for an unknown name, an option that the sampler does not
/// take or that contradicts its name, a sampler that cannot do flow matching where the config is of that, and
/// Error(Model) for a config that names no known class.
SamplerChoice choose_sampler(std::string_view name, const Settings& config, const SamplerOptions& options = {});

/// Builds the sampler that choose_sampler chooses; Error(Model) also for a config that is not understood.
std::unique_ptr<Sampler> make_sampler(std::string_view name, const Settings& config,
                                      const SamplerOptions& options = {});

/// True for the config of a model that was trained on straight paths from noise to picture, x = (1 - sigma) clean +
/// sigma noise: its output is their velocity, noise - clean.
bool is_flow_matching(const Settings& config);

/// The main name of every sampler, sorted.
std::vector<std::string> sampler_names();

/// What AUTOMATIC1111's web UI calls a sampler ("DPM++ 2M" for "dpm++2m"); the name itself if it is not known.
std::string a1111_sampler_name(std::string_view name);

/// The settings published with Stable Diffusion 1.5 (PNDM), for checkpoints that come without a scheduler_config.json.
nlohmann::json sd15_scheduler_config();

}  // namespace tenon
