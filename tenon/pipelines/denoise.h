// What families that draw have in common: the loop from noise to latents, whatever network and sampler, and what comes
// before and behind it.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tenon/models/vae.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/runtime/executable.h"

namespace tenon {

/// What the loop runs: a network of inputs "latents" and "step", ready but for its phase of rate step.
struct DenoisingNetwork {
  Executable& executable;
  std::string result;  ///< of the network
  /// What the sampler takes, as long as the latents, out of the network's result of one of its calls.
  std::function<std::vector<float>(std::vector<float> result, int call)> guided;
};

/// Runs every call of the sampler over `latents`, which hold one image for each source of noise. Fills in the steps'
/// times. Asks check_stop(). Error(Numeric) names the launch where a value stopped being finite.
void denoise(const DenoisingNetwork& network, Sampler& sampler, std::span<const NoiseSource> noise,
             std::vector<float>& latents, Timings& timings, const OnStep& on_step);

/// Makes `init` of the request's picture: brought to the request's size, a side that is not given being the picture's,
/// rounded down to a multiple of `unit` (as diffusers does). Error(Usage) for sizes that are none, and for a picture
/// together with latents.
void take_picture(ImageRequest& r, int64_t unit);
/// Error(Usage) unless a request with `init`, complete but for that, can start from it.
void check_init(const ImageRequest& r);
/// Latents that image to image begins with, one image for each source of noise: drawn from the distribution that the
/// encoder's `moments` of one picture describe, then mixed with noise as the sampler's first call expects.
std::vector<float> noised_latents(const VaeConfig& vae, std::span<const float> moments, const Sampler& sampler,
                                  std::span<const NoiseSource> noise);

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
