// Models that draw, for training: encoding of pictures and texts by the frozen parts, and the denoising network as an
// expression.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/backend/weight_source.h"
#include "tenon/io/image.h"
#include "tenon/models/lora_names.h"
#include "tenon/models/weights.h"
#include "tenon/nn/diffusion_loss.h"
#include "tenon/nn/scope.h"
#include "tenon/pipelines/family.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/networks.h"

namespace tenon {

/// A noise level in training: x = picture * x0 + noise * noise, and the time that the network is given for it.
struct TrainingLevel {
  double picture = 0, noise = 1, time = 0;
};

/// How a model is trained.
struct DenoiserTraining {
  nn::DenoisingTarget target = nn::DenoisingTarget::Noise;
  std::vector<TrainingLevel> levels;  ///< all levels, noisiest first
  /// Latents are sampled from the encoder's distribution, as in diffusers' training of this family; else its mean is
  /// used.
  bool draws_latents = false;
  bool distilled = false;  ///< distilled to few steps; training it as is makes it unlearn that
};

/// The text features that the network reads.
struct TextFeatures {
  std::vector<float> values;  ///< [rows, width]
  int64_t rows = 0, width = 0;
};

/// The network's inputs in a training step; all of rate step.
struct DenoiserInputs {
  Expr latents;      ///< f32 [B,C,h,w], noised
  Expr times;        ///< f32 [B], TrainingLevel::time of each image
  Expr text;         ///< [B,rows,width] in the precision's activation type
  Expr text_tokens;  ///< i32 [B]: number of valid rows
};

class TrainableDenoiser {
 public:
  static constexpr AbilityName kAbility{"train lora", "learn from pictures", "default-model"};
  struct Options {
    std::shared_ptr<Backend> backend;
    DType type = DType::F32;  ///< of weights and activations
    PartPaths parts = {};
    bool encodes = true;  ///< false: only the network is needed, and the other parts may be missing
  };

  virtual ~TrainableDenoiser() = default;
  virtual const std::string& name() const = 0;
  /// The files of its weights, configurations and tokenizer; none for random weights.
  virtual std::vector<std::filesystem::path> files() const = 0;
  /// The network's name in files: "unet".
  virtual std::string component() const = 0;
  virtual LoraNames lora_names() const = 0;
  virtual WeightShapes shapes() const = 0;
  virtual std::unique_ptr<WeightSource> weights() const = 0;
  /// Default side of a picture in pixels; check_size throws Error(Usage) for sizes that the model does not support.
  virtual int64_t default_side() const = 0;
  virtual void check_size(int64_t height, int64_t width) const = 0;
  /// Both sides must be multiples of it.
  virtual int64_t size_unit() const = 0;
  /// [channels, height, width] of a picture's latents.
  virtual Shape latent_shape(int64_t height, int64_t width) const = 0;
  /// `shift` replaces the model's own shift, for flow matching; Error(Usage) for other models.
  virtual DenoiserTraining training(std::optional<double> shift) const = 0;
  /// The latent for a sample z of the encoder's distribution.
  virtual double latent_of(double z) const = 0;

  /// The encoder's distribution of a picture's latents: means followed by log variances, [2 channels, height, width].
  virtual std::vector<float> encode_picture(const Image& picture) = 0;
  /// Features of a text, which is truncated to the model's limit.
  virtual TextFeatures encode_text(const std::string& text) = 0;
  /// Their shape [rows, width], without encoding the text.
  virtual Shape text_shape(const std::string& text) const = 0;
  /// Frees what encoding needs.
  virtual void release_encoders() = 0;
  /// Number of rows that the network is given if the longest text has `rows`.
  virtual int64_t padded_rows(int64_t rows) const = 0;

  /// Which of the network's layers tolerate e4m3 with quantised rows, everything else being bf16; empty if unknown.
  virtual std::optional<PrecisionPolicy> e4m3_rows() const { return {}; }

  /// The network's prediction of DenoiserTraining::target, f32 [B,C,h,w].
  virtual Expr predict(const DenoiserInputs& in, nn::Precision p) const = 0;
};

/// Options for planning the frozen parts.
inline NetworkOptions training_networks(const TrainableDenoiser::Options& options) {
  NetworkOptions out;
  out.precision = {options.type, options.type};
  out.target = options.backend->target();
  return out;
}

}  // namespace tenon
