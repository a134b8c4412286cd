// Text to image and image to image with a Stable Diffusion 1.x model: tokens, hidden states, denoising loop, picture.
#pragma once
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/io/image_resize.h"
#include "tenon/pipelines/networks.h"
#include "tenon/pipelines/schedulers/scheduler.h"
#include "tenon/runtime/executable.h"

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

/// What is asked for. Sizes in pixels; a size or a number of steps of 0, a negative guidance and an empty sampler mean
/// the model's own default.
struct ImageRequest {
  std::string prompt, negative;
  int64_t width = 0, height = 0;
  int steps = 0;
  double cfg_scale = -1;  ///< 1 or less: one conditional pass, no guidance
  std::string sampler;
  SchedulerOptions scheduler;
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
  DType type = DType::F32;
  std::vector<double> timesteps;  ///< of every model call
  std::vector<double> sigmas;     ///< noise over signal at every model call; infinite where there is no signal
  std::vector<float> latents;     ///< [batch, 4, H/8, W/8], before decoding
  Timings timings;
  int64_t peak_bytes = 0;  ///< of the largest network, as planned
};

struct PipelineOptions {
  std::string device = "cpu";
  int threads = 0;
  std::optional<DType> type;  ///< bf16 or f32; unset: bf16 where the device has it
  bool fusion = true;
  bool keep_networks = false;  ///< keep every network ready between calls instead of one at a time
  int keep_sizes = 4;          ///< then: sizes that each is kept ready for, those used last, over one set of weights
};

/// Not thread-safe. Asks check_stop().
class TextToImage {
 public:
  TextToImage(std::shared_ptr<const Model> model, const PipelineOptions& options = {});
  ~TextToImage();

  /// The request with every default of the model filled in and checked: Error(Usage) names what is wrong.
  ImageRequest complete(ImageRequest request) const;
  /// What of a complete request the model was not trained for, a sentence each: words that it does not know, a size
  /// that is not its own. Nothing for models that are not limited to a few words. `word_list`: where the caller's user
  /// finds those that it knows.
  std::vector<std::string> warnings(const ImageRequest& request, const std::string& word_list) const;
  /// Error(Memory) names the largest size that fits unless every network of this request fits the device.
  void check_fits(const ImageRequest& request) const;
  ImageResult generate(const ImageRequest& request, const OnStep& on_step = {});

  /// Networks that are ready now, one for each size, and what their weights take together.
  struct Kept {
    int networks = 0;
    WeightStore::Counters weights;
  };
  Kept kept() const;

  const Model& model() const { return *model_; }
  Backend& backend() { return *backend_; }
  const NetworkOptions& networks() const { return networks_; }

 private:
  // A network made ready for some sizes, by key; the one used last is first.
  struct Ready {
    std::string key;
    std::unique_ptr<Executable> executable;
  };
  using Network = std::list<Ready>;
  Executable& network(Network& network, const std::string& key, const std::function<Plan()>& plan,
                      const std::string& component);
  std::unique_ptr<Executable> prepare(Plan plan, const std::string& component);
  void free_networks();
  std::vector<float> encode_windows(const std::vector<TokenWindow>& windows, int64_t clip_skip, Timings& timings);
  std::vector<float> encode_prompts(const ImageRequest& r, int64_t& tokens, Timings& timings);
  std::vector<float> initial_latents(const ImageRequest& r, Scheduler& scheduler, std::vector<NoiseSource>& noise,
                                     Timings& timings);
  void denoise(const ImageRequest& r, Scheduler& scheduler, const std::vector<float>& context, int64_t tokens,
               std::vector<float>& latents, const std::vector<NoiseSource>& noise, ImageResult& result,
               const OnStep& on_step);
  std::vector<Image> decode(const ImageRequest& r, const std::vector<float>& latents, Timings& timings);
  GenerationShape shape_of(const ImageRequest& r, int64_t tokens, int64_t timesteps) const;
  /// Windows of the negative prompt (if guided) and of the prompt, equally many.
  std::vector<std::vector<TokenWindow>> windows_of(const ImageRequest& r) const;
  int64_t planned_bytes(const ImageRequest& r, int64_t windows) const;
  void check_latents(const ImageRequest& r) const;
  void take_picture(ImageRequest& r) const;
  [[noreturn]] void name_launch(Executable& unet, int step) const;

  std::shared_ptr<const Model> model_;
  PipelineOptions options_;
  std::shared_ptr<Backend> backend_;
  NetworkOptions networks_;
  std::map<std::string, std::shared_ptr<WeightStore>> stores_;  // by component
  Network text_, unet_, decoder_, encoder_;
};

}  // namespace tenon
