// Draws pictures with a Z-Image model: tokens, hidden states, flow from noise (or a noised picture) to latents,
// decoding.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tenon/pipelines/families/z_image/networks.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/kept_networks.h"
#include "tenon/pipelines/lora_set.h"
#include "tenon/pipelines/samplers/sampler.h"

namespace tenon {

class ZImageGenerator : public ImageGenerator {
 public:
  explicit ZImageGenerator(std::shared_ptr<const ZImageModel> model, const PipelineOptions& options = {});

  const std::string& name() const override { return model_->name(); }
  std::vector<std::filesystem::path> files() const override;
  KnownWords known_words() const override { return model_->known_words(); }
  double guidance_offset() const override { return 1; }
  ImageRequest complete(ImageRequest request) const override;
  std::vector<std::string> warnings(const ImageRequest& request, const std::string& word_list) const override;
  LoraReport load_lora(const LoraUse& use) override { return loras_.load(use); }
  void unload_loras() override { loras_.forget(); }
  Shape latent_shape(const ImageRequest& request) const override;
  void check_fits(const ImageRequest& request) const override;
  ImageResult generate(const ImageRequest& request, const OnStep& on_step = {}) override;
  Backend& backend() override { return *backend_; }
  KeptNetworks::Counters counters() const { return kept_.counters(); }

  const ZImageModel& model() const { return *model_; }

 private:
  // The request's texts that the transformer reads, each once: prompts, then the negative one if there is guidance.
  struct Texts {
    std::vector<std::vector<int32_t>> ids;
    size_t prompts = 0;
    std::vector<float> hidden;  // [texts, rows, width]
    int64_t rows = 0;           // text_rows of the longest
  };
  Texts texts_of(const ImageRequest& r) const;
  void encode(Texts& texts, Timings& timings);
  ZImageShape shape_of(const ImageRequest& r, const Texts& texts, int64_t timesteps) const;
  std::vector<float> encode_picture(const ImageRequest& r, const Sampler& sampler, std::span<const NoiseSource> noise,
                                    Timings& timings);
  void flow(const ImageRequest& r, Sampler& sampler, const Texts& texts, std::span<const NoiseSource> noise,
            std::vector<float>& latents, ImageResult& result, const OnStep& on_step);

  std::shared_ptr<const ZImageModel> model_;
  std::shared_ptr<Backend> backend_;
  NetworkOptions networks_;
  std::filesystem::path lora_folder_;
  bool batch_invariant_;
  LoraSet loras_;
  KeptNetworks kept_;
};

}  // namespace tenon
