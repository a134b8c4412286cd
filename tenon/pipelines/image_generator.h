// Models that draw: what is asked of them and what they give, whatever the family.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/io/image_resize.h"
#include "tenon/models/lora.h"
#include "tenon/pipelines/family.h"
#include "tenon/pipelines/known_words.h"
#include "tenon/pipelines/networks.h"
#include "tenon/pipelines/samplers/sampler.h"

namespace tenon {

/// A picture to start from: RGB values in [-1, 1], rows from the top, channels interleaved.
struct InitImage {
  InitImage() = default;
  /// From 8-bit RGB; throws Error(Usage) for another number of channels.
  InitImage(const Image& image);  // NOLINT: a picture is what callers have
  int64_t width = 0, height = 0;
  std::vector<float> values;
  std::string sha256;  ///< of the 8-bit pixels that it was made from; empty for values from elsewhere
  /// Of the picture that it was scaled from; empty if it was not scaled.
  std::optional<std::pair<int64_t, int64_t>> scaled_from;
};

/// A LoRA of a request.
struct LoraUse {
  std::filesystem::path file;
  double weight = 1;
  bool partial = false;     ///< tensors that have no place in the model are left out, not refused
  std::string sha256 = {};  ///< of the file; filled in by whoever draws
};

/// What is asked for. Sizes in pixels; a size or a number of steps of 0, a negative guidance and an empty sampler mean
/// the model's own default.
struct ImageRequest {
  std::string prompt, negative;
  std::vector<LoraUse> loras;        ///< complete() adds those that the prompt names, and takes their names out of it
  std::vector<std::string> prompts;  ///< of each image, where they differ: then `prompt` means nothing
  int64_t width = 0, height = 0;
  int steps = 0;
  double cfg_scale = -1;         ///< 1 or less: one conditional pass, no guidance
  double cfg_normalization = 0;  ///< Z-Image's, as cfg_truncation: see ZImageGuidance
  double cfg_truncation = 1;
  std::string sampler;
  SamplerOptions sampler_options;
  uint64_t seed = 0;
  int64_t batch = 1;           ///< image i uses seed + i
  int64_t clip_skip = 0;       ///< layers of the text encoder left out for the prompt (not for the negative one)
  bool decode = true;          ///< false: the latents are all that is wanted
  std::vector<float> latents;  ///< initial noise of unit variance [batch, channels, H/8, W/8]; empty: from the seed
  /// Image to image: a picture of any size, of which complete() makes `init`. Without a width and height the request
  /// takes the picture's, down to what the model can.
  std::optional<Image> picture;
  ResizeMode resize_mode = ResizeMode::Stretch;  ///< of a picture of another size
  std::optional<InitImage> init;                 ///< image to image; of the asked size
  double strength = 0.75;                        ///< of image to image, in (0, 1]

  const std::string& prompt_of(size_t image) const { return prompts.empty() ? prompt : prompts.at(image); }
  /// What is to be drawn: a prompt for each image where they differ, else one for all.
  std::vector<std::string> all_prompts() const { return prompts.empty() ? std::vector{prompt} : prompts; }
};

struct Progress {
  int step = 0, steps = 0;   ///< steps done
  double seconds = 0;        ///< of the last one
  double timestep = 0;       ///< at which the model was called
  std::span<float> latents;  ///< after the step, [batch, channels, H/8, W/8]; the next step takes what is left here
};
/// Called after every step.
using OnStep = std::function<void(const Progress&)>;

struct Timings {
  double load = 0, text = 0, encode = 0, denoise = 0, decode = 0;  ///< seconds
  std::vector<double> steps;
};

struct ImageResult {
  std::vector<Image> images;  ///< none if the request does not want them decoded
  std::vector<uint64_t> seeds;
  ImageRequest request;  ///< with every default filled in, the sampler by its main name
  NetworkType type = DType::F32;
  std::vector<double> timesteps;  ///< of every model call
  std::vector<double> sigmas;     ///< noise over signal at every model call; infinite where there is no signal
  std::vector<float> latents;     ///< [batch, 4, H/8, W/8], before decoding
  Timings timings;
  int64_t peak_bytes = 0;  ///< of the largest network, as planned
};

/// How LoRAs are applied.
enum class LoraApply : uint8_t {
  Merge,  ///< added to the weights: nothing more to compute; changing one makes the weights that it touches again
  Side    ///< beside linear layers as products of their own: changing one copies its two small matrices
};

/// Where parts of a model are, each a file or a component's folder, of families whose models come in parts. Empty:
/// where the model has them.
struct PartPaths {
  std::string diffusion_model = {}, text_encoder = {}, vae = {};
  bool any() const { return !diffusion_model.empty() || !text_encoder.empty() || !vae.empty(); }
};

struct PipelineOptions {
  std::string device = "cpu";
  int threads = 0;
  std::optional<NetworkType> type;  ///< unset: bf16 where the device has it
  bool fusion = true;
  bool batch_invariant = false;            ///< BackendOptions::batch_invariant; at most kMostInvariantImages then
  std::filesystem::path lora_folder = {};  ///< of LoRAs that prompts name; empty: the working directory
  LoraApply lora_apply = LoraApply::Merge;
  int64_t lora_rank = 32;      ///< of LoraApply::Side: ranks of all LoRAs of a request together, at a layer
  bool keep_networks = false;  ///< keep every network ready between calls instead of one at a time
  int keep_sizes = 4;          ///< then: sizes that each is kept ready for, those used last, over one set of weights
  /// Bytes of the device's memory that networks may take: weights that do not fit wait in the host's, and are copied
  /// while others are at work. kOffloadAutomatically, or unset: all weights are on the device.
  std::optional<int64_t> offload = {};
  PartPaths parts = {};
};

/// Most images of a batch, and of one that is to be batch invariant: launches of larger ones have other forms.
inline constexpr int64_t kMostImages = 1024, kMostInvariantImages = 8;
/// Error(Usage) for a batch of fewer or more.
void check_batch(int64_t images, bool batch_invariant);

/// A model ready to draw. Not thread-safe. Asks check_stop().
class ImageGenerator {
 public:
  static constexpr AbilityName kAbility{"generate", "draw pictures", "default-model"};
  using Options = PipelineOptions;

  virtual ~ImageGenerator() = default;
  virtual const std::string& name() const = 0;
  /// The files that its weights are from; none for random weights.
  virtual std::vector<std::filesystem::path> files() const = 0;
  /// All the words that it was trained on, of a model that was trained on few; empty otherwise.
  virtual KnownWords known_words() const { return {}; }
  /// What cfg_scale is more than diffusers' guidance_scale: 1 for models whose pipeline counts from 0.
  virtual double guidance_offset() const { return 0; }
  /// The request with every default of the model filled in and checked: Error(Usage) names what is wrong.
  virtual ImageRequest complete(ImageRequest request) const = 0;
  /// What of a complete request the model was not trained for, a sentence each: words that it does not know, a size
  /// that is not its own. Nothing for models that are not limited to a few words. `word_list`: where the caller's user
  /// finds those that it knows.
  virtual std::vector<std::string> warnings(const ImageRequest& request, const std::string& word_list) const {
    static_cast<void>(request), static_cast<void>(word_list);
    return {};
  }
  /// Reads a LoRA, also if it was read before, and says what of it is of use. Error(Model) says why it is not this
  /// model's; Error(Usage) for models that take none.
  virtual LoraReport load_lora(const LoraUse& use);
  /// Forgets all LoRAs that were read.
  virtual void unload_loras() {}
  /// Of a complete request: [batch, channels, height, width], as Progress and ImageResult have them.
  virtual Shape latent_shape(const ImageRequest& request) const = 0;
  /// Error(Memory) names the largest size that fits unless every network of this request fits the device.
  virtual void check_fits(const ImageRequest& request) const = 0;
  /// Draws what `request`, completed, asks for. Error(Numeric) names where a value stopped being finite.
  virtual ImageResult generate(const ImageRequest& request, const OnStep& on_step = {}) = 0;
  virtual Backend& backend() = 0;
};

}  // namespace tenon
