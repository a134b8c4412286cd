#include "tenon/pipelines/families/stable_diffusion/training.h"

#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"
#include "tenon/pipelines/families/stable_diffusion/networks.h"
#include "tenon/pipelines/kept_networks.h"
#include "tenon/pipelines/model_files.h"
#include "tenon/pipelines/samplers/noise_schedule.h"

namespace tenon {
namespace {

constexpr const char* kUNet = "unet";

nn::DenoisingTarget target_of(Prediction p) {
  return p == Prediction::Epsilon ? nn::DenoisingTarget::Noise
         : p == Prediction::V     ? nn::DenoisingTarget::Velocity
                                  : nn::DenoisingTarget::Sample;
}

PipelineOptions keeping_networks() {
  PipelineOptions out;
  out.keep_networks = true;
  return out;
}

class StableDiffusionTraining : public TrainableDenoiser {
 public:
  StableDiffusionTraining(std::shared_ptr<const StableDiffusionModel> model, const Options& options)
      : model_(std::move(model)),
        networks_(training_networks(options)),
        kept_(
            options.backend, [this](const std::string& component) { return model_->weights(component); },
            keeping_networks()) {
    TENON_CHECK(Usage, !options.parts.any(), "parts") << "Stable Diffusion 1.x models are read whole";
  }

  const std::string& name() const override { return model_->name(); }
  std::vector<std::filesystem::path> files() const override {
    const StableDiffusionCheckpoint* checkpoint = model_->checkpoint();
    if (!checkpoint) return {};
    return encoder_files(checkpoint->components(), checkpoint->tokenizer().value_or(""));
  }
  std::string component() const override { return kUNet; }
  LoraNames lora_names() const override { return stable_diffusion_lora_names(model_->config()); }
  WeightShapes shapes() const override { return unet_weights(model_->config().unet); }
  std::unique_ptr<WeightSource> weights() const override { return model_->weights(kUNet); }

  int64_t default_side() const override { return model_->defaults().width; }
  void check_size(int64_t height, int64_t width) const override { tenon::check_size(*model_, height, width); }
  int64_t size_unit() const override { return model_->config().vae.downsampling(); }
  Shape latent_shape(int64_t height, int64_t width) const override {
    const VaeConfig& vae = model_->config().vae;
    return {vae.latent_channels, height / vae.downsampling(), width / vae.downsampling()};
  }
  DenoiserTraining training(std::optional<double> shift) const override {
    TENON_CHECK(Usage, !shift, "shift") << "is for flow matching, which " << name() << " was not trained with";
    const Settings settings = model_->scheduler_config();
    const NoiseSchedule schedule(settings, {});
    DenoiserTraining out{.target = target_of(schedule.prediction()), .levels = {}, .draws_latents = true};
    for (int t = schedule.train_steps() - 1; t >= 0; --t) {
      const double a = schedule.product(t);
      out.levels.push_back({std::sqrt(a), std::sqrt(1 - a), static_cast<double>(t)});
    }
    return out;
  }
  double latent_of(double z) const override { return model_->config().vae.latent_of(z); }

  std::vector<float> encode_picture(const Image& picture) override {
    const GenerationShape shape{.height = picture.height, .width = picture.width};
    Executable& e = kept_.get("encoder", "vae", std::to_string(picture.width) + "x" + std::to_string(picture.height),
                              [&] { return plan_vae_encode(*model_, shape, networks_); });
    e.set("image", InitImage(picture).values);
    e.run_all();
    return e.get("moments");
  }
  TextFeatures encode_text(const std::string& text) override {
    const ClipTokenizer& tokenizer = model_->tokenizer();
    const ClipTextConfig& config = model_->config().text;
    int64_t dropped = 0;
    const TokenWindow window = tokenizer.first_window(tokenizer.encode(text), &dropped);
    if (dropped > 0)
      spdlog::warn("caption '{}' is too long for {}: dropped its last {} tokens", shown(text), name(), dropped);
    Executable& e = kept_.get("text", "text_encoder", "", [&] { return plan_text(*model_, 1, networks_); });
    e.set("tokens", HostView{DType::I32, {1, config.positions}, window.ids.data()});
    e.run_all();
    return {e.get("hidden"), config.positions, config.hidden};
  }
  Shape text_shape(const std::string&) const override {
    return {model_->config().text.positions, model_->config().text.hidden};
  }
  void release_encoders() override { kept_.release(); }
  int64_t padded_rows(int64_t rows) const override { return rows; }

  Expr predict(const DenoiserInputs& in, nn::Precision p) const override {
    return unet(model_->config().unet, {in.latents, in.times, {}, in.text}, p);
  }

 private:
  std::shared_ptr<const StableDiffusionModel> model_;
  NetworkOptions networks_;
  KeptNetworks kept_;
};

}  // namespace

std::unique_ptr<TrainableDenoiser> stable_diffusion_training(std::shared_ptr<const StableDiffusionModel> model,
                                                             const TrainableDenoiser::Options& options) {
  return std::make_unique<StableDiffusionTraining>(std::move(model), options);
}

}  // namespace tenon
