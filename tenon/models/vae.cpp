#include "tenon/models/vae.h"

#include "tenon/expr/ops.h"
#include "tenon/nn/attention.h"
#include "tenon/nn/diffusion.h"
#include "tenon/nn/linear.h"

namespace tenon {
namespace {

constexpr double kEps = 1e-6;

nn::GroupNorm norm_of(const VaeConfig& c) { return {c.norm_groups, kEps}; }

// Single-head attention over all pixels, with a residual connection.
Expr attention_block(const nn::Scope& s, const VaeConfig& c, const Expr& x) {
  const int64_t channels = x.shape()[-1];
  const Expr y = nn::tokens_of_image(nn::group_norm(s / "group_norm", x, norm_of(c)));
  const auto project = [&](const char* name) { return nn::linear(s / name, y, channels); };
  const Expr mixed = nn::attention(project("to_q"), project("to_k"), project("to_v"), 1, s.act());
  return cast(nn::linear(s / "to_out.0", reshape(mixed, x.shape()), channels) + x, s.act());
}

Expr residual_stack(const nn::Scope& s, const VaeConfig& c, Expr h, int64_t channels, int64_t count) {
  for (int64_t i = 0; i < count; ++i) h = nn::residual_block(s / "resnets" / i, h, channels, norm_of(c));
  return h;
}

Expr middle(const nn::Scope& s, const VaeConfig& c, Expr h) {
  const int64_t channels = c.channels.back();
  h = nn::residual_block(s / "resnets.0", h, channels, norm_of(c));
  if (c.mid_attention) h = attention_block(s / "attentions.0", c, h);
  return nn::residual_block(s / "resnets.1", h, channels, norm_of(c));
}

Expr leave(const nn::Scope& s, const VaeConfig& c, const Expr& h, int64_t outputs) {
  return nn::conv3x3(s / "conv_out", silu(nn::group_norm(s / "conv_norm_out", h, norm_of(c))), outputs);
}

// The weights that a graph reads: the decoder's or the encoder's.
template <class Build>
WeightShapes weights_from(const Build& build) {
  Graph g;
  return weights_of(std::array{build(g)});
}

}  // namespace

Expr vae_decode(const VaeConfig& c, const Expr& latents, nn::Precision p, ImageRange range) {
  const Shape& shape = latents.shape();
  TENON_CHECK(Usage, shape.rank() == 4 && shape[1] == c.latent_channels && shape.numel() > 0, "vae_decode")
      << "expected latents [B," << c.latent_channels << ",h,w], got " << shape.str();
  const nn::Scope root(latents.graph(), p), s = root / "decoder";
  Expr z = permute(latents, {0, 2, 3, 1}) / c.scaling_factor;
  if (c.shift_factor != 0) z = z + c.shift_factor;
  if (c.post_quant_conv) z = cast(nn::conv2d(root / "post_quant_conv", z, c.latent_channels, 1), p.act);
  Expr h = cast(nn::conv3x3(s / "conv_in", z, c.channels.back()), p.act);
  h = middle(s / "mid_block", c, h);
  const size_t levels = c.channels.size();
  for (size_t i = 0; i < levels; ++i) {
    const nn::Scope block = s / "up_blocks" / static_cast<int64_t>(i);
    const int64_t channels = c.channels[levels - 1 - i];
    h = residual_stack(block, c, h, channels, c.layers_per_block + 1);
    if (i + 1 < levels) h = cast(nn::conv3x3(block / "upsamplers.0.conv", upsample2x(h), channels), p.act);
  }
  const Expr image = leave(s, c, h, c.image_channels);
  return range == ImageRange::Unit ? clamp(image * 0.5 + 0.5, 0.0, 1.0) : image;
}

Expr vae_decode(Graph& g, const VaeConfig& c, int64_t batch, int64_t height, int64_t width, nn::Precision p,
                ImageRange range) {
  return vae_decode(c, input(g, "latents", DType::F32, {batch, c.latent_channels, height, width}), p, range);
}

Expr vae_encode(const VaeConfig& c, const Expr& image, nn::Precision p) {
  const Shape& shape = image.shape();
  const bool fits = shape.rank() == 4 && shape.numel() > 0 && shape[3] == c.image_channels &&
                    shape[1] % c.downsampling() == 0 && shape[2] % c.downsampling() == 0;
  TENON_CHECK(Usage, fits, "vae_encode") << "expected images [B,H,W," << c.image_channels
                                         << "] with H and W multiples of " << c.downsampling() << ", got "
                                         << shape.str();
  const nn::Scope root(image.graph(), p), s = root / "encoder";
  Expr h = cast(nn::conv3x3(s / "conv_in", image, c.channels[0]), p.act);
  for (size_t i = 0; i < c.channels.size(); ++i) {
    const nn::Scope block = s / "down_blocks" / static_cast<int64_t>(i);
    h = residual_stack(block, c, h, c.channels[i], c.layers_per_block);
    // Pads with zeros only on the right and below, unlike the UNet.
    if (i + 1 < c.channels.size())
      h = cast(nn::conv2d(block / "downsamplers.0.conv", h, c.channels[i], 3, 2, {0, 0, 1, 1}), p.act);
  }
  const int64_t moments = 2 * c.latent_channels;
  Expr m = leave(s, c, middle(s / "mid_block", c, h), moments);
  if (c.quant_conv) m = nn::conv2d(root / "quant_conv", cast(m, p.act), moments, 1);
  m = permute(m, {0, 3, 1, 2});
  return concat({slice(m, 1, 0, c.latent_channels), clamp(slice(m, 1, c.latent_channels, moments), -30.0, 20.0)}, 1);
}

Expr vae_encode(Graph& g, const VaeConfig& c, int64_t batch, int64_t height, int64_t width, nn::Precision p) {
  return vae_encode(c, input(g, "image", DType::F32, {batch, height, width, c.image_channels}), p);
}

WeightShapes vae_decoder_weights(const VaeConfig& c) {
  return weights_from([&](Graph& g) { return vae_decode(g, c, 1, 1, 1, nn::kF32); });
}
WeightShapes vae_encoder_weights(const VaeConfig& c) {
  return weights_from([&](Graph& g) { return vae_encode(g, c, 1, c.downsampling(), c.downsampling(), nn::kF32); });
}
WeightShapes vae_weights(const VaeConfig& c) {
  WeightShapes all = vae_decoder_weights(c);
  all.merge(vae_encoder_weights(c));
  return all;
}

}  // namespace tenon
