#include "tenon/train/denoising.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/not_null.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/vjp.h"
#include "tenon/io/random.h"

namespace tenon::train {
namespace {

constexpr const char *kLatents = "latents", *kNoise = "noise", *kPictureShare = "picture_share",
                     *kNoiseShare = "noise_share", *kWeight = "weight", *kTimes = "times", *kText = "text";

}  // namespace

PrecisionPolicy training_precision(const TrainableDenoiser& model, DType type, const nn::SideBranches& branches) {
  if (type != DType::E4M3) return training_precision(type);
  const std::optional<PrecisionPolicy> own = model.e4m3_rows();
  TENON_CHECK(Usage, own, "type") << "e4m3: it is not known which layers of '" << model.name()
                                  << "' tolerate it; use bf16 or f32";  // training takes no exceptions by name
  return precision_of(model.name(), {.policy = NetworkType(type).policy, .side = branches}, own);
}

Expr denoising_loss(Graph& g, const TrainableDenoiser& model, const DenoisingShape& shape, nn::DenoisingTarget target,
                    const nn::SideBranches& branches, nn::Precision p) {
  const int64_t b = shape.batch;
  const Shape latents{b, shape.latent[0], shape.latent[1], shape.latent[2]}, one{b, 1, 1, 1};
  const Expr x0 = input(g, kLatents, DType::F32, latents), noise = input(g, kNoise, DType::F32, latents);
  const nn::NoiseShares shares{input(g, kPictureShare, DType::F32, one), input(g, kNoiseShare, DType::F32, one)};
  const DenoiserInputs in{materialize(nn::noised(x0, noise, shares)), input(g, kTimes, DType::F32, {b}),
                          input(g, kText, p.act, {b, shape.text_rows, shape.text_width}),
                          input(g, DenoisingBatch::kTextTokens, DType::I32, {b})};
  const Expr prediction = nn::with_side_branches(model.predict(in, p), branches);
  return nn::denoising_loss(prediction, nn::denoising_target(target, x0, noise, shares),
                            input(g, kWeight, DType::F32, {b}));
}

Differentiated adapter_gradients(Graph& g, const TrainableDenoiser& model, const DenoisingShape& shape,
                                 nn::DenoisingTarget target, const nn::SideBranches& branches, nn::Precision p) {
  static_cast<void>(not_null(branches.weights, "weights with side branches"));
  const Expr loss = denoising_loss(g, model, shape, target, branches, p);
  std::set<std::string> factors;
  for (const std::string& w : *branches.weights) factors.insert({nn::side_down(w), nn::side_up(w)});
  std::vector<Expr> params;
  for (const Expr& e : topological(std::array{loss}))
    if (e.is<nodes::Param>() && factors.contains(e->attrs.text)) params.push_back(e);
  const std::vector<Expr> grads = gradients(loss, {}, params);
  Differentiated out{loss, {}, {}, {loss}};
  for (size_t i = 0; i < params.size(); ++i) out.gradients.push_back({params[i]->attrs.text, grads[i]});
  return out;
}

DenoisingBatch::DenoisingBatch(const DenoisingData& data, const DenoisingShape& shape) : data_(data), shape_(shape) {
  static_cast<void>(not_null(data.model, "model"));
  static_cast<void>(not_null(data.pictures, "pictures"));
}

bool DenoisingBatch::reads_tokens(const Plan& plan) {
  return std::ranges::find(plan.buffers, kTextTokens, &Buffer::name) != plan.buffers.end();
}

void DenoisingBatch::add(size_t picture, uint64_t seed, double u) {
  const EncodedPicture& p = data_.pictures->pictures.at(picture);
  TorchGenerator random(seed);
  std::array<float, 2> uniform{};
  std::array<float, 1> normal{};
  random.rand(uniform);
  random.randn(normal);
  const bool drawn = u < 0;
  const auto side = drawn ? static_cast<size_t>(uniform[0] * static_cast<float>(p.moments.size())) : 0;
  const double at =
      drawn ? density_u(data_.timesteps, static_cast<double>(uniform[1]), static_cast<double>(normal[0])) : u;
  const TrainingLevel& level = level_at(data_.training.levels, at);
  const std::vector<float>& moments = p.moments[side];
  const size_t n = moments.size() / 2;
  std::vector<float> noise(n), spread(n);
  random.randn(noise);
  if (data_.training.draws_latents) random.randn(spread);
  for (size_t i = 0; i < n; ++i) {
    const float z =
        data_.training.draws_latents ? moments[i] + std::exp(0.5F * moments[n + i]) * spread[i] : moments[i];
    latents_.push_back(static_cast<float>(data_.model->latent_of(static_cast<double>(z))));
  }
  noise_.insert(noise_.end(), noise.begin(), noise.end());
  picture_share_.push_back(static_cast<float>(level.picture));
  noise_share_.push_back(static_cast<float>(level.noise));
  weight_.push_back(static_cast<float>(loss_weight(data_.timesteps, data_.training.target, level)));
  times_.push_back(static_cast<float>(level.time));
  const TextFeatures& text = data_.pictures->texts.at(p.text);
  text_.insert(text_.end(), text.values.begin(), text.values.end());
  text_.resize(text_.size() + static_cast<size_t>((shape_.text_rows - text.rows) * shape_.text_width));
  tokens_.push_back(static_cast<int32_t>(text.rows));
}

std::vector<std::pair<const char*, const std::vector<float>*>> DenoisingBatch::floats() const {
  TENON_CHECK(Internal, std::ssize(tokens_) == shape_.batch, "batch")
      << "has " << tokens_.size() << " examples, expected " << shape_.batch;
  return {{kLatents, &latents_},
          {kNoise, &noise_},
          {kPictureShare, &picture_share_},
          {kNoiseShare, &noise_share_},
          {kWeight, &weight_},
          {kTimes, &times_},
          {kText, &text_}};
}

}  // namespace tenon::train
