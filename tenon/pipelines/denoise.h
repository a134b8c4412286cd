// Shared by families that draw: the loop from noise to latents, for any network and sampler, and the work before and
// after it.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenon/models/vae.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/kept_networks.h"
#include "tenon/pipelines/networks.h"
#include "tenon/pipelines/samplers/sampler.h"
#include "tenon/pipelines/samplers/settings.h"
#include "tenon/runtime/executable.h"

namespace tenon {

/// What drawing a complete request begins with, in every family.
struct Drawing {
  std::unique_ptr<Sampler> sampler;  ///< ready for the request's steps
  std::vector<NoiseSource> noise;    ///< of each image, from a seed of its own
  ImageResult result;                ///< with the request, seeds, times and options
};
Drawing begin_drawing(ImageRequest request, const Settings& scheduler, const NetworkOptions& networks, LoraApply lora);
/// `numel` standard normals in all, as many from each source.
std::vector<float> drawn_noise(int64_t numel, std::span<const NoiseSource> noise);

/// The network that the loop runs. It has inputs "latents" and "step", and is ready except for its phase of rate step.
struct DenoisingNetwork {
  Executable& executable;
  std::string result;  ///< name of the network's result
  /// Turns the network's result of one call into the sampler's input, as long as the latents.
  std::function<std::vector<float>(std::vector<float> result, int call)> guided;
};

/// Runs the plan's phases but the one of rate step: once per prompt.
void run_slower_phases(Executable& network);

/// Runs every call of the sampler on `latents`, which hold one image per source of noise. Records the steps' times.
/// Asks check_stop(). Error(Numeric) names the launch in which a value stopped being finite.
void denoise(const DenoisingNetwork& network, Sampler& sampler, std::span<const NoiseSource> noise,
             std::vector<float>& latents, Timings& timings, const OnStep& on_step);

/// Makes `init` from the request's picture, fitted to the request's size; a side that is not given is the picture's,
/// rounded down to a multiple of `unit` (as diffusers does). Error(Usage) for invalid sizes, and for a picture together
/// with latents.
void take_picture(ImageRequest& r, int64_t unit);
/// Error(Usage) unless the otherwise complete request can start from its `init`.
void check_init(const ImageRequest& r);
/// Initial latents of image to image, one image per source of noise: sampled from the distribution that the encoder's
/// `moments` of one picture describe, then mixed with noise as the sampler's first call expects.
std::vector<float> noised_latents(const VaeConfig& vae, std::span<const float> moments, const Sampler& sampler,
                                  std::span<const NoiseSource> noise);

/// The request's pictures from `latents`, by the kept network "decoder". `plan` plans it, with the input "latents" and
/// the result "pixels".
std::vector<Image> decoded(KeptNetworks& kept, const std::function<Plan()>& plan, const ImageRequest& r,
                           const std::vector<float>& latents, Timings& timings);
/// Pictures from pixels f32 [count, height, width, 3] in [0, 1]; Error(Numeric) if one is not finite.
std::vector<Image> images_of(std::span<const float> pixels, int64_t count, int64_t height, int64_t width);

/// Error(Memory) unless the `needed` bytes of a picture of width x height are available. The message names the largest
/// size of that aspect ratio, in multiples of `unit`, that fits, or `otherwise` says what is too large.
void check_size_fits(int64_t width, int64_t height, int64_t unit, int64_t available,
                     const std::function<int64_t(int64_t width, int64_t height)>& needed, const std::string& otherwise);

/// Throws Error(Usage), naming the nearest valid size, unless height and width are positive multiples of `unit` and not
/// absurd.
void check_sides(int64_t height, int64_t width, int64_t unit);

}  // namespace tenon
