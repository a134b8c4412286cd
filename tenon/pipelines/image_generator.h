// Models that draw, of any family: requests and results.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/core/shape.h"
#include "tenon/io/image_resize.h"
#include "tenon/models/lora_report.h"
#include "tenon/pipelines/family.h"
#include "tenon/pipelines/known_words.h"
#include "tenon/pipelines/network_type.h"
#include "tenon/pipelines/samplers/sampler_options.h"

namespace tenon {

class Backend;

/// A picture to start from: RGB values in [-1, 1], rows from the top, channels interleaved.
struct InitImage {
  InitImage() = default;
  /// From 8-bit RGB; throws Error(Usage) for another number of channels.
  InitImage(const Image& image);  // NOLINT: a picture is what callers have
  int64_t width = 0, height = 0;
  std::vector<float> values;
  std::string sha256;  ///< of the 8-bit pixels that it was made from; empty for values from another source
  /// Size of the picture that it was scaled from; empty if it was not scaled.
  std::optional<std::pair<int64_t, int64_t>> scaled_from;
};

/// A LoRA of a request.
struct LoraUse {
  std::filesystem::path file;
  double weight = 1;
  bool partial = false;          ///< leave out tensors that have no place in the model, rather than refuse the file
  std::string sha256 = {};       ///< of the file; filled in by the generator, as is the next
  std::string data_sha256 = {};  ///< of what follows the file's header, by which AUTOMATIC1111's web UI knows it
};

/// A request. Sizes are in pixels; 0 for a size or the number of steps, a negative guidance and an empty sampler mean
/// the model's default.
struct ImageRequest {
  std::string prompt, negative;
  std::vector<LoraUse> loras;        ///< complete() adds those that the prompt names, and removes their names from it
  std::vector<std::string> prompts;  ///< one per image if they differ; `prompt` is then ignored
  int64_t width = 0, height = 0;
  int steps = 0;
  double cfg_scale = -1;  ///< 1 or less: one conditional pass, no guidance
  /// Limit of a guided prediction's norm, in norms of the prompt's own prediction; 0: none. A family without such a
  /// limit, or without the next, refuses a request that has one.
  double cfg_normalization = 0;
  double cfg_truncation = 1;  ///< no guidance at steps with less noise than 1 minus this
  std::string sampler;
  SamplerOptions sampler_options;
  uint64_t seed = 0;
  int64_t batch = 1;           ///< image i uses seed + i
  int64_t clip_skip = 0;       ///< layers of the text encoder to skip for the prompt (not for the negative one)
  bool decode = true;          ///< false: only the latents are wanted
  std::vector<float> latents;  ///< initial noise of unit variance [batch, channels, H/8, W/8]; empty: from the seed
  /// Image to image: a picture of any size, from which complete() makes `init`. A request without width and height
  /// takes the picture's, rounded down to what the model supports.
  std::optional<Image> picture;
  ResizeMode resize_mode = ResizeMode::Stretch;  ///< for a picture of another size
  std::optional<InitImage> init;                 ///< image to image; must have the requested size
  double strength = 0.75;                        ///< of image to image, in (0, 1]

  const std::string& prompt_of(size_t image) const { return prompts.empty() ? prompt : prompts.at(image); }
  /// A prompt for each image if they differ, else one for all.
  std::vector<std::string> all_prompts() const { return prompts.empty() ? std::vector{prompt} : prompts; }
};

struct Progress {
  int step = 0, steps = 0;   ///< steps done
  double seconds = 0;        ///< duration of the last step
  double timestep = 0;       ///< at which the model was last called
  std::span<float> latents;  ///< after the step, [batch, channels, H/8, W/8]; the next step uses them, changed or not
};
/// Called after every step.
using OnStep = std::function<void(const Progress&)>;

struct Timings {
  double load = 0, text = 0, encode = 0, denoise = 0, decode = 0;  ///< seconds
  std::vector<double> steps;
};

/// How LoRAs are applied.
enum class LoraApply : uint8_t {
  Merge,  ///< added to the weights: no extra computation; a change recomputes the weights that it touches
  Side    ///< side branches of linear layers: a change only copies two small matrices
};

struct ImageResult {
  std::vector<Image> images;  ///< empty if the request does not want them decoded
  std::vector<uint64_t> seeds;
  ImageRequest request;  ///< with every default filled in, the sampler by its main name
  NetworkType type = DType::F32;
  bool fusion = true;                       ///< PipelineOptions'
  bool batch_invariant = false;             ///< PipelineOptions'
  LoraApply lora_apply = LoraApply::Merge;  ///< PipelineOptions'
  std::vector<double> timesteps;            ///< of every model call
  std::vector<double> sigmas;  ///< noise over signal at every model call; infinite where there is no signal
  std::vector<float> latents;  ///< [batch, channels, H/8, W/8], before decoding
  Timings timings;
  int64_t peak_bytes = 0;  ///< of the largest network, as planned
};

/// Locations of a model's parts, each a file or a component's folder, for families whose models come in parts. Empty:
/// the part in the model itself.
struct PartPaths {
  std::string diffusion_model = {}, text_encoder = {}, vae = {};
  bool any() const { return !diffusion_model.empty() || !text_encoder.empty() || !vae.empty(); }
};

struct PipelineOptions {
  std::string device = "cpu";
  int threads = 0;
  std::optional<NetworkType> type;  ///< unset: bf16 where the device has it
  bool fusion = true;
  bool batch_invariant = false;            ///< BackendOptions::batch_invariant; at most kMaxInvariantImages then
  std::filesystem::path lora_folder = {};  ///< folder of LoRAs that prompts name; empty: the working directory
  LoraApply lora_apply = LoraApply::Merge;
  int64_t lora_rank = 32;      ///< for LoraApply::Side: largest total rank per layer of a request's LoRAs
  bool keep_networks = false;  ///< keep all networks ready between calls, rather than one at a time
  int keep_sizes = 4;          ///< with keep_networks: last used sizes kept ready per network, over the same weights
  /// Bytes of device memory that networks may take: weights that do not fit stay in the host's memory and are copied
  /// while others are in use. Or kOffloadAutomatically. Unset: all weights are on the device.
  std::optional<int64_t> offload = {};
  PartPaths parts = {};
};

/// Most images of a batch, and of a batch-invariant one: larger ones use launches of other forms.
inline constexpr int64_t kMaxImages = 1024, kMaxInvariantImages = 8;
/// Error(Usage) for a number of images outside these limits.
void check_batch(int64_t images, bool batch_invariant);

/// A model ready to draw. Not thread-safe. Asks check_stop().
class ImageGenerator {
 public:
  static constexpr AbilityName kAbility{"generate", "draw pictures", "default-model"};
  using Options = PipelineOptions;

  virtual ~ImageGenerator() = default;
  virtual const std::string& name() const = 0;
  /// The files of its weights; none for random weights.
  virtual std::vector<std::filesystem::path> files() const = 0;
  /// All words that it was trained on, if it was trained on few; otherwise empty.
  virtual KnownWords known_words() const { return {}; }
  /// cfg_scale minus diffusers' guidance_scale: 1 for models whose pipeline counts guidance from 0.
  virtual double guidance_offset() const { return 0; }
  /// The request with all defaults filled in and checked: Error(Usage) names what is wrong.
  virtual ImageRequest complete(ImageRequest request) const = 0;
  /// Aspects of a complete request that the model was not trained for, one sentence each: unknown words, another size.
  /// Empty for models that are not limited to a few words. `word_list`: where the user finds the known words.
  virtual std::vector<std::string> warnings(const ImageRequest& request, const std::string& word_list) const {
    static_cast<void>(request), static_cast<void>(word_list);
    return {};
  }
  /// Reads a LoRA, even if it was read before, and reports what was used of it. Error(Model) if it does not fit this
  /// model; Error(Usage) for models that take none.
  virtual LoraReport load_lora(const LoraUse& use);
  /// Drops all LoRAs that were read.
  virtual void unload_loras() {}
  /// For a complete request: [batch, channels, height, width], the shape in Progress and ImageResult.
  virtual Shape latent_shape(const ImageRequest& request) const = 0;
  /// Error(Memory), naming the largest size that fits, unless every network of this request fits the device.
  virtual void check_fits(const ImageRequest& request) const = 0;
  /// Draws `request` after completing it. Error(Numeric) names where a value stopped being finite.
  virtual ImageResult generate(const ImageRequest& request, const OnStep& on_step = {}) = 0;
  virtual Backend& backend() = 0;
};

}  // namespace tenon
