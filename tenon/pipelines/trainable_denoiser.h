// Models that draw, as their training sees them: what their frozen parts make of pictures and texts, and the network
// that removes noise as an expression.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/io/image.h"
#include "tenon/models/lora_names.h"
#include "tenon/models/weights.h"
#include "tenon/nn/diffusion_loss.h"
#include "tenon/nn/scope.h"
#include "tenon/pipelines/family.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/networks.h"

namespace tenon {

/// A noise level of training: x = picture * x0 + noise * noise, and what the network is told of it.
struct TrainingLevel {
  double picture = 0, noise = 1, time = 0;
};

/// How a model is trained.
struct DenoiserTraining {
  nn::DenoisingTarget target = nn::DenoisingTarget::Noise;
  std::vector<TrainingLevel> levels;  ///< all there are, the noisiest first
  /// Latents are drawn from the encoder's distribution, as diffusers' training of this family does; else its mean.
  bool draws_latents = false;
  bool distilled = false;  ///< to few steps: what is trained on it as it is unlearns that
};

/// What the network reads of a text.
struct TextFeatures {
  std::vector<float> values;  ///< [rows, width]
  int64_t rows = 0, width = 0;
};

/// What a training step gives the network; all of rate step.
struct DenoiserInputs {
  Expr latents;      ///< f32 [B,C,h,w], noised
  Expr times;        ///< f32 [B], TrainingLevel::time of each image
  Expr text;         ///< [B,rows,width] in the precision's type of activations
  Expr text_tokens;  ///< i32 [B]: rows that count
};

class TrainableDenoiser {
 public:
  static constexpr AbilityName kAbility{"train lora", "learn from pictures", "default-model"};
  struct Options {
    std::shared_ptr<Backend> backend;
    DType type = DType::F32;  ///< of weights and activations
    PartPaths parts = {};
    bool encodes = true;  ///< false: nothing but the network is asked for, which may then be all there is
  };

  virtual ~TrainableDenoiser() = default;
  virtual const std::string& name() const = 0;
  /// The files that its weights are from; none for random weights.
  virtual std::vector<std::filesystem::path> files() const = 0;
  /// What the network is called in files: "unet".
  virtual std::string component() const = 0;
  virtual LoraNames lora_names() const = 0;
  virtual WeightShapes shapes() const = 0;
  virtual std::unique_ptr<WeightSource> weights() const = 0;
  /// Pixels of a picture's side where nothing else is asked for; Error(Usage) for sizes that the model cannot take.
  virtual int64_t default_side() const = 0;
  virtual void check_size(int64_t height, int64_t width) const = 0;
  /// What both sides are a multiple of.
  virtual int64_t size_unit() const = 0;
  /// [channels, height, width] of a picture's latents.
  virtual Shape latent_shape(int64_t height, int64_t width) const = 0;
  /// `shift`: in the place of the model's own, of flow matching; Error(Usage) for other models.
  virtual DenoiserTraining training(std::optional<double> shift) const = 0;
  /// The latent that a number drawn from the encoder's distribution becomes.
  virtual double latent_of(double z) const = 0;

  /// The encoder's distribution of a picture's latents: means, then log variances, [2 channels, height, width].
  virtual std::vector<float> encode_picture(const Image& picture) = 0;
  /// Features of a text; what is too long for the model is cut off.
  virtual TextFeatures encode_text(const std::string& text) = 0;
  /// [rows, width] of them, without encoding it.
  virtual Shape text_shape(const std::string& text) const = 0;
  /// Frees what encoding needs.
  virtual void release_encoders() = 0;
  /// Rows that the network is given for texts of which the longest has `rows`.
  virtual int64_t padded_rows(int64_t rows) const = 0;

  /// Which of the network's layers bear quantised rows of e4m3, all else being bf16; none if that is not known.
  virtual std::optional<PrecisionPolicy> e4m3_rows() const { return {}; }

  /// What DenoiserTraining::target is of, f32 [B,C,h,w].
  virtual Expr predict(const DenoiserInputs& in, nn::Precision p) const = 0;
};

/// How frozen parts are planned.
inline NetworkOptions training_networks(const TrainableDenoiser::Options& options) {
  NetworkOptions out;
  out.precision = {options.type, options.type};
  out.target = options.backend->target();
  return out;
}

}  // namespace tenon
