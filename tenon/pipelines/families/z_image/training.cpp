#include "tenon/pipelines/families/z_image/training.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"
#include "tenon/expr/ops.h"
#include "tenon/pipelines/families/z_image/networks.h"
#include "tenon/pipelines/kept_networks.h"
#include "tenon/pipelines/model_files.h"

namespace tenon {
namespace {

constexpr double kTurboShift = 3;  // of the scheduler of the model distilled to few steps, which uses no guidance

class ZImageTraining : public TrainableDenoiser {
 public:
  ZImageTraining(std::shared_ptr<const ZImageModel> model, const Options& options)
      : model_(std::move(model)),
        networks_(training_networks(options)),
        kept_(
            options.backend, [this](const std::string& component) { return model_->weights(component); },
            PipelineOptions()) {
    if (options.encodes) model_->require_all();
  }

  const std::string& name() const override { return model_->name(); }
  std::vector<std::filesystem::path> files() const override {
    return encoder_files(model_->components(), model_->files().tokenizer_where);
  }
  std::string component() const override { return ZImageCheckpoint::kTransformer; }
  LoraNames lora_names() const override { return model_->lora_names(); }
  WeightShapes shapes() const override { return model_->shapes(ZImageCheckpoint::kTransformer); }
  std::unique_ptr<WeightSource> weights() const override { return model_->weights(ZImageCheckpoint::kTransformer); }

  int64_t default_side() const override { return model_->defaults().width; }
  void check_size(int64_t height, int64_t width) const override { tenon::check_size(*model_, height, width); }
  int64_t size_unit() const override { return model_->size_unit(); }
  Shape latent_shape(int64_t height, int64_t width) const override {
    const VaeConfig& vae = model_->vae();
    return {model_->transformer().channels, height / vae.downsampling(), width / vae.downsampling()};
  }
  // Levels s = n / N for n = N..1, shifted: shift s / (1 + (shift - 1) s).
  DenoiserTraining training(std::optional<double> shift) const override {
    const Settings settings = model_->scheduler_config();
    settings.refuse({"use_dynamic_shifting"});
    const int count = settings.integer("num_train_timesteps", 1000, 1, 100000);
    const double own = settings.number("shift", 1, 1e-3, 1e3), by = shift.value_or(own);
    TENON_CHECK(Usage, std::isfinite(by) && by >= 1e-3 && by <= 1e3, "flow shift")
        << by << ": expected a number from 0.001 to 1000";
    DenoiserTraining out{.target = nn::DenoisingTarget::Flow, .levels = {}};
    out.distilled = own == kTurboShift && model_->defaults().cfg_scale <= 1;
    for (int n = count; n > 0; --n) {
      const double even = static_cast<double>(n) / count, s = by * even / (1 + (by - 1) * even);
      out.levels.push_back({1 - s, s, 1 - s});
    }
    return out;
  }
  double latent_of(double z) const override { return model_->vae().latent_of(z); }

  std::vector<float> encode_picture(const Image& picture) override {
    Executable& e = kept_.get("encoder", "vae", std::to_string(picture.width) + "x" + std::to_string(picture.height),
                              [&] { return plan_vae_encode(*model_, 1, picture.height, picture.width, networks_); });
    e.set("image", InitImage(picture).values);
    e.run_all();
    return e.get("moments");
  }
  TextFeatures encode_text(const std::string& text) override {
    std::vector<int32_t> ids = model_->tokens(text);
    if (std::ssize(ids) > kZImageTextTokens) {
      spdlog::warn("caption '{}' is too long for {}: dropped its last {} tokens", shown(text), name(),
                   std::ssize(ids) - kZImageTextTokens);
      ids.resize(kZImageTextTokens);
    }
    const int64_t tokens = std::ssize(ids), rows = text_rows(tokens);
    check_text(*model_, tokens, "caption '" + shown(text) + "'");
    ids.resize(static_cast<size_t>(rows));  // padding after a text's end does not affect it
    Executable& e =
        kept_.get("text", "text_encoder", std::to_string(rows), [&] { return plan_text(*model_, 1, rows, networks_); });
    e.set("tokens", HostView{DType::I32, {1, rows}, ids.data()});
    e.run_all();
    std::vector<float> hidden = e.get("hidden");
    hidden.resize(static_cast<size_t>(tokens * model_->text().width));
    return {std::move(hidden), tokens, model_->text().width};
  }
  Shape text_shape(const std::string& text) const override {
    const int64_t tokens = std::min(std::ssize(model_->tokens(text)), kZImageTextTokens);
    check_text(*model_, tokens, "caption '" + shown(text) + "'");
    return {tokens, model_->text().width};
  }
  void release_encoders() override { kept_.release(); }
  int64_t padded_rows(int64_t rows) const override { return padded_sequence(rows); }

  std::optional<PrecisionPolicy> e4m3_rows() const override { return z_image_e4m3_rows(); }

  Expr predict(const DenoiserInputs& in, nn::Precision p) const override {
    const ZImageInputs inputs{.latents = in.latents,
                              .times = in.times,
                              .step = {},
                              .text = in.text,
                              .text_tokens = in.text_tokens,
                              .equal_texts = false};
    return -z_image(model_->transformer(), inputs, p);
  }

 private:
  std::shared_ptr<const ZImageModel> model_;
  NetworkOptions networks_;
  KeptNetworks kept_;
};

}  // namespace

std::unique_ptr<TrainableDenoiser> z_image_training(std::shared_ptr<const ZImageModel> model,
                                                    const TrainableDenoiser::Options& options) {
  return std::make_unique<ZImageTraining>(std::move(model), options);
}

}  // namespace tenon
