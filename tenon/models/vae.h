// The image autoencoder of Stable Diffusion 1.x and of Flux and Z-Image (diffusers' AutoencoderKL): latents to images
// and back; as published, latents are eight times smaller per side.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/models/weights.h"
#include "tenon/nn/scope.h"

namespace tenon {

/// The defaults are Stable Diffusion 1.5.
struct VaeConfig {
  int64_t image_channels = 3;
  int64_t latent_channels = 4;
  std::vector<int64_t> channels = {128, 256, 512, 512};
  int64_t layers_per_block = 2;  ///< residual blocks per encoder level; a decoder level has one more
  int64_t norm_groups = 32;
  double scaling_factor = 0.18215;  ///< latent = (sample of the encoder's distribution - shift) * this
  double shift_factor = 0;
  bool quant_conv = true;
  bool post_quant_conv = true;
  bool mid_attention = true;
  /// Pixels per latent along a side.
  int64_t downsampling() const { return int64_t{1} << (channels.size() - 1); }
  /// The latent for a sample z of the encoder's distribution.
  double latent_of(double z) const { return (z - shift_factor) * scaling_factor; }
};

/// Z-Image's VAE, which is FLUX.1's.
VaeConfig flux_vae();

/// From diffusers' config.json; absent keys take AutoencoderKL's defaults. Error(Model) names `where`, key and value
/// for what is not implemented.
VaeConfig vae_config(const nlohmann::json& config, const std::string& where);
/// From names and shapes alone. They do not show scaling and shift, which are taken to be Stable Diffusion 1.x's, or
/// those of flux_vae(). Error(Model) for another kind.
VaeConfig detect_vae(const WeightShapes& weights, const std::string& where);
VaeConfig detect_flux_vae(const WeightShapes& weights, const std::string& where);

enum class ImageRange { Signed, Unit };  ///< values in about [-1, 1]; or clamp(x/2 + 0.5, 0, 1)

/// Images f32 [B,8h,8w,3] (NHWC; 8 for four levels) from latents f32 [B,latent_channels,h,w] (NCHW), undoing their
/// scaling and shift. Not rounded.
Expr vae_decode(const VaeConfig& c, const Expr& latents, nn::Precision p, ImageRange range = ImageRange::Unit);
/// vae_decode over the input "latents".
Expr vae_decode(Graph& g, const VaeConfig& c, int64_t batch, int64_t height, int64_t width, nn::Precision p,
                ImageRange range = ImageRange::Unit);

/// Moments f32 [B,2*latent_channels,h,w] (NCHW) of images f32 [B,8h,8w,3] in [-1,1] (NHWC): the first half of the
/// channels is the mean, the second the log variance, clamped to [-30,20]. A latent is latent_of(mean + exp(logvar/2) *
/// noise).
Expr vae_encode(const VaeConfig& c, const Expr& image, nn::Precision p);
/// vae_encode over the input "image"; height and width in pixels.
Expr vae_encode(Graph& g, const VaeConfig& c, int64_t batch, int64_t height, int64_t width, nn::Precision p);

/// Every tensor of the decoder, of the encoder, of both.
WeightShapes vae_decoder_weights(const VaeConfig& c);
WeightShapes vae_encoder_weights(const VaeConfig& c);
WeightShapes vae_weights(const VaeConfig& c);

}  // namespace tenon
