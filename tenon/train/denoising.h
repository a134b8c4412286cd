// Training steps of a denoiser: batches of noised pictures, and the loss over them with its gradients.
#pragma once
#include <cstdint>
#include <vector>

#include "tenon/nn/low_rank.h"
#include "tenon/plan/plan.h"
#include "tenon/train/gradients.h"
#include "tenon/train/picture_set.h"
#include "tenon/train/timesteps.h"

namespace tenon::train {

struct DenoisingShape {
  int64_t batch = 1;
  Shape latent;  ///< [channels, height, width]
  int64_t text_rows = 0, text_width = 0;
};

/// Precision of training in `type`: f32; bf16, to which the operands of all products are rounded, gradients included;
/// or e4m3 rows where the model tolerates them and bf16 elsewhere. Error(Usage): it is not known which layers tolerate
/// e4m3.
PrecisionPolicy training_precision(const TrainableDenoiser& model, DType type, const nn::SideBranches& branches);

/// The loss over the inputs set by DenoisingBatch::give, with side branches beside the network's layers.
Expr denoising_loss(Graph& g, const TrainableDenoiser& model, const DenoisingShape& shape, nn::DenoisingTarget target,
                    const nn::SideBranches& branches, nn::Precision p);
/// The same, with gradients only for the branches' factors.
Differentiated adapter_gradients(Graph& g, const TrainableDenoiser& model, const DenoisingShape& shape,
                                 nn::DenoisingTarget target, const nn::SideBranches& branches, nn::Precision p);

/// How examples are sampled.
struct DenoisingData {
  const TrainableDenoiser* model = nullptr;
  const PictureSet* pictures = nullptr;
  DenoiserTraining training;
  TimestepOptions timesteps;
  uint64_t seed = 0;
};

/// Examples of one run.
class DenoisingBatch {
 public:
  /// Name of the input with the number of valid rows of each text.
  static constexpr const char* kTextTokens = "text_tokens";

  DenoisingBatch(const DenoisingData& data, const DenoisingShape& shape);

  /// Adds an example of picture number `picture`; mirroring, noise level and noise are drawn from `seed`. With `u` in
  /// [0, 1) the noise level is that of `u`, and the picture is not mirrored.
  void add(size_t picture, uint64_t seed, double u = -1);
  /// Sets the inputs of a plan that has them.
  template <class To>
  void give(To& to) const {
    for (const auto& [name, values] : floats()) to.set(name, std::span<const float>(*values));
    if (reads_tokens(to.plan())) to.set(kTextTokens, HostView{DType::I32, {shape_.batch}, tokens_.data()});
  }

 private:
  static bool reads_tokens(const Plan& plan);
  std::vector<std::pair<const char*, const std::vector<float>*>> floats() const;

  const DenoisingData& data_;
  DenoisingShape shape_;
  std::vector<float> latents_, noise_, picture_share_, noise_share_, weight_, times_, text_;
  std::vector<int32_t> tokens_;
};

}  // namespace tenon::train
