// The loop of diffusion models: from noise to latents, whatever network and sampler.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tenon/pipelines/image_generator.h"
#include "tenon/runtime/executable.h"

namespace tenon {

/// What the loop runs: a network of inputs "latents" and "step", ready but for its phase of rate step.
struct DenoisingNetwork {
  Executable& executable;
  std::string result;  ///< of the network
  /// What the sampler takes, as long as the latents, out of the network's result.
  std::function<std::vector<float>(std::vector<float>)> guided;
};

/// Runs every call of the sampler over `latents`, which hold one image for each source of noise. Fills in the steps'
/// times. Asks check_stop(). Error(Numeric) names the launch where a value stopped being finite.
void denoise(const DenoisingNetwork& network, Sampler& sampler, std::span<const NoiseSource> noise,
             std::vector<float>& latents, Timings& timings, const OnStep& on_step);

/// Pictures of pixels f32 [count, height, width, 3] in [0, 1]; Error(Numeric) for one that is not finite.
std::vector<Image> images_of(std::span<const float> pixels, int64_t count, int64_t height, int64_t width);

/// Error(Memory) unless `needed` bytes of a picture of width x height are available; it names the largest size of the
/// same shape, in multiples of `unit`, that fits, or says what is too much `otherwise`.
void check_size_fits(int64_t width, int64_t height, int64_t unit, int64_t available,
                     const std::function<int64_t(int64_t width, int64_t height)>& needed, const std::string& otherwise);

/// Throws Error(Usage) unless height and width are positive multiples of `unit` and not absurd; names the nearest valid
/// size.
void check_sides(int64_t height, int64_t width, int64_t unit);

}  // namespace tenon
