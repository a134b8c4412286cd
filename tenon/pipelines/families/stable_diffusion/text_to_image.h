// Text to image and image to image with a Stable Diffusion 1.x model: tokens, hidden states, denoising loop, picture.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tenon/pipelines/families/stable_diffusion/networks.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/kept_networks.h"
#include "tenon/pipelines/lora_set.h"
#include "tenon/pipelines/samplers/sampler.h"

namespace tenon {

class TextToImage : public ImageGenerator {
 public:
  explicit TextToImage(std::shared_ptr<const StableDiffusionModel> model, const PipelineOptions& options = {});
  ~TextToImage() override;

  const std::string& name() const override { return model_->name(); }
  std::vector<std::filesystem::path> files() const override;
  KnownWords known_words() const override { return model_->known_words(); }
  ImageRequest complete(ImageRequest request) const override;
  std::vector<std::string> warnings(const ImageRequest& request, const std::string& word_list) const override;
  LoraReport load_lora(const LoraUse& use) override { return loras_.load(use); }
  void unload_loras() override { loras_.forget(); }
  Shape latent_shape(const ImageRequest& request) const override;
  void check_fits(const ImageRequest& request) const override;
  ImageResult generate(const ImageRequest& request, const OnStep& on_step = {}) override;
  Backend& backend() override { return *backend_; }

  const KeptNetworks& kept() const { return kept_; }
  const StableDiffusionModel& model() const { return *model_; }
  const NetworkOptions& networks() const { return networks_; }

 private:
  std::vector<float> encode_windows(const std::vector<TokenWindow>& windows, int64_t clip_skip, Timings& timings);
  std::vector<float> encode_prompts(const ImageRequest& r, int64_t& tokens, Timings& timings);
  std::vector<float> initial_latents(const ImageRequest& r, Sampler& sampler, std::vector<NoiseSource>& noise,
                                     Timings& timings);
  void denoise(Sampler& sampler, const std::vector<float>& context, int64_t tokens, std::vector<float>& latents,
               const std::vector<NoiseSource>& noise, ImageResult& result, const OnStep& on_step);
  GenerationShape shape_of(const ImageRequest& r, int64_t tokens, int64_t timesteps) const;
  /// Windows of the negative prompt (if guided) and of the prompt, the same number of each.
  std::vector<std::vector<TokenWindow>> windows_of(const ImageRequest& r) const;
  int64_t planned_bytes(const ImageRequest& r, int64_t windows) const;
  void check_latents(const ImageRequest& r) const;

  std::shared_ptr<const StableDiffusionModel> model_;
  PipelineOptions options_;
  std::shared_ptr<Backend> backend_;
  NetworkOptions networks_;
  LoraSet loras_;
  KeptNetworks kept_;
};

}  // namespace tenon
